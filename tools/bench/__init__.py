"""How fast the rooms are on one core, beside what one would use instead, in one run.

    python -m tools.bench --data build/demo                           `make bench`: filters, signatures and encoding
    python -m tools.bench filters --input 'corpus/*.jsonl' --peers    the filter and its peers

CPU seconds, the median of several runs; MB are 10^6 bytes of HTML or of UTF-8 text. Ratios are what to trust: absolute
figures belong to the machine. Nothing here is asserted by a test.
"""
