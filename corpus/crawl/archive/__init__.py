"""The archive: WARC records in files that survive a kill."""
