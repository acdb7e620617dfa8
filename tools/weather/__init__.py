"""A store with weather: requests that are slow, refused, cut short, answered and lost, by a seed.

`filesystem.py` is a folder as `weather://`, for builds that no server should slow down; `proxy.py` stands before a real
S3 server. Both draw their faults and count their requests by `faults.py`; its `environment` reaches child processes.
"""
