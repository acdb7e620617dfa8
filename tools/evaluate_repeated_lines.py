"""Which lines `dedup.repeated_lines` cuts from real pages: python -m tools.evaluate_repeated_lines --data FOLDER

FOLDER holds `html/MANUAL/**.html`, each manual a site (all text of a page is read, frame and all), and `text/*.jsonl`,
each file a site of articles without one. A last row plants the same lines of chrome on each article of 300 characters or
more. With --show the lines that go most often are printed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpus.dedup import repeated_lines
from corpus.dedup.config import RepeatedLinesConfig
from corpus.dedup.keys import text_buffers
from corpus.dedup.repeated_lines import Lines
from tools.evaluate_dedup import TAG
from tools.evaluate_encoding import print_table
from tools.planted_duplicates import FOOTER, HEADER, MIN_CHARS

CONFIG = RepeatedLinesConfig()
CHROME = tuple(line for line in (HEADER + FOOTER.lstrip("\n")).splitlines() if line)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="see above")
    parser.add_argument("--show", type=int, default=0, metavar="LINES", help="of each site")
    options = parser.parse_args(arguments)
    sites: dict[str, list[str]] = {}
    for path in sorted(options.data.glob("html/*")):
        sites[path.name] = [TAG.sub("", page.read_text("utf-8", "replace")) for page in sorted(path.rglob("*.html"))]
    articles: list[str] = []
    for path in sorted(options.data.glob("text/*.jsonl")):
        sites[path.stem] = [json.loads(line)["text"] for line in path.read_text("utf-8").split("\n")[:-1]]
        articles += [text for text in sites[path.stem] if len(text) >= MIN_CHARS]
    planted = [HEADER + text + FOOTER for text in articles]
    rows = [["site", "pages", "pages cut", "lines", "lines cut", "different", "bytes cut", "of planted chrome"]]
    for site, texts in (sites | {"planted chrome": planted}).items():
        cut, size, touched, num_lines = cut_lines(texts)
        found = sum(cut[line] for line in CHROME)
        gone = sum(len(line.encode()) * count for line, count in cut.items())
        row = [
            site,
            str(len(texts)),
            str(touched),
            str(num_lines),
            str(cut.total()),
            str(len(cut)),
            f"{gone / max(size, 1):.2%}",
        ]
        rows.append([*row, f"{found / (len(CHROME) * len(texts)):.1%}" if texts is planted else ""])
        for line, count in cut.most_common(options.show):
            print(f"{site}: {count} x {line[:60]}")
    print_table(rows)


def cut_lines(texts: Sequence[str]) -> tuple[Counter[str], int, int, int]:
    """One site's cut lines with their numbers; its bytes, pages that lose a line, and lines."""
    offsets, data = text_buffers(pa.array(texts, pa.large_string()))
    urls, sources = (
        pa.chunked_array([pa.nulls(len(texts), pa.string())]),
        pa.chunked_array([pa.array(["s"] * len(texts))]),
    )
    lines: Lines = repeated_lines.read_lines(urls, sources, offsets, data, CONFIG.min_chars, CONFIG.max_chars)
    counts = repeated_lines.count_documents(*repeated_lines.records(lines), least=CONFIG.min_documents)
    drop = repeated_lines.repeated(lines, repeated_lines.Counts([counts]), CONFIG.min_documents, CONFIG.max_share)
    cut = Counter(
        data[lines.offsets[line] : lines.offsets[line + 1]].tobytes().decode().strip() for line in np.flatnonzero(drop)
    )
    return cut, len(data), len(np.unique(lines.documents[drop])), len(drop)


if __name__ == "__main__":
    main()
