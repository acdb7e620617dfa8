"""The command line: serve the fake web until Ctrl-C."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path

from tools.fake_site import world


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(prog="python -m tools.fake_site", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: one that is free")
    parser.add_argument(
        "--log", type=Path, default=Path("/dev/null"), help="where every request becomes a line of JSON"
    )
    parser.add_argument("--data", type=Path, help="a folder of folders of HTML pages; each becomes a site")
    parser.add_argument("--options", default="{}", help="JSON: arguments of tools.fake_site.world.build")
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    arguments = parser.parse_args()
    options = {"data": arguments.data} | json.loads(arguments.options)
    with suppress(KeyboardInterrupt):
        world.serve(options, arguments.log, arguments.port, arguments.until_eof)


if __name__ == "__main__":
    main()
