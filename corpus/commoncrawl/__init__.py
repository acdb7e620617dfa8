"""Common Crawl: captures in a language by its columnar index, or whole WET and WARC files, to WARC files on a disk or
store.

    index Parquet -> cc_select -> cc_sort -> cc_fetch      captures of the wanted language, one range each
    wet.paths.gz, warc.paths.gz -> cc_files                whole files

All are stages of the engine: finished tasks are kept, counts are conserved, and the bytes depend on neither workers nor
deaths nor the order of answers. client.py asks (http.py speaks HTTP), ranges.py joins neighbours, check.py says whether
what came is the record that the index promised.
"""
