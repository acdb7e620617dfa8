"""One module a format, with `read_FORMAT(path, config)`; `corpus.sources.kinds` has the table."""
