"""A deterministic web of many hosts on loopback, to crawl: honest Chinese sites, rules, traps, faults and forgeries.

    python -m tools.fake_site [--port 0] [--data FOLDER] [--log FILE]

Each host has an address of its own in 127.0.0.0/8 and all have one port; a crawler is told them as `curl --resolve` is.
What a well-behaved crawler makes of each URL stands beside the page that is served (site.py), and expected.py holds a
crawl against it. In front of the server is `world.start`, which runs it in a process of its own.
"""
