"""What doctest must not import here: these run where the peers are installed."""

collect_ignore_glob = ["bench/peers/*_*.py"]
