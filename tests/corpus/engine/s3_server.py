"""An S3 server on loopback in a process of its own (moto's): prints its address, lives until its input ends."""

from __future__ import annotations

import logging
import sys


def main() -> None:
    """Serve until standard input ends."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").disabled = True
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
