"""Count the table of character bigrams that ships with the filters, from free texts of package registries.

    python -m tools.bigram_table --out corpus/filters/bigrams.table

Modern prose is Debian's Chinese documentation (fourteen packages), classical prose and verse the npm package
chinese-poetry, and the insides of words come from jieba's word list with its frequencies. The table holds frequencies
of pairs of characters, no text. `bigrams.txt` beside it names each source with its version, licence and weight.

The weights make up for size: verse is thirteen times the documentation, and a word list has no pairs across words.
They were chosen on a glance at four settings, not tuned; the statistic hardly depends on them.
"""

from __future__ import annotations

import argparse
import gzip
import html
import io
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine import durable
from corpus.engine.cli import run_command
from corpus.filters.quality import bigrams
from corpus.kernels.tables import script_pairs
from tools.demo.debian_pages import Apt, run

DOCUMENTATION = {  # licence by the package's copyright file
    "debian-edu-doc-zh-cn": "GPL-2+",
    "debian-faq-zh-cn": "GPL-2+",
    "debian-handbook": "CC-BY-SA-3.0 or GPL-2+",
    "debian-reference-zh-cn": "GPL-2+",
    "debian-reference-zh-tw": "GPL-2+",
    "fortunes-zh": "GPL-3+",
    "gimp-help-zh-cn": "GFDL-1.2+",
    "gnome-user-docs": "CC-BY-SA-3.0",
    "installation-guide-amd64": "GPL-2+",
    "kicad-doc-zh": "GPL-3+ or CC-BY-3.0+",
    "libreoffice-help-zh-cn": "MPL-2.0",
    "libreoffice-help-zh-tw": "MPL-2.0",
    "maint-guide-zh-cn": "GPL-2+",
    "manpages-zh": "GFDL-1.2+ and others, by page",
}
POETRY = "chinese-poetry@2.0.1"
CLASSICS = re.compile(r"dist/(?:lunyu|mengxue|sishuwujing|youmengying|shijing|chuci)/")
VERSE = re.compile(r"dist/(?:quantangshi/poet|songci/ci\.|yuanqu|wudaishici)")
SMOOTHING = 3.0  # k: three sightings are as much evidence as none
UNIT = 24  # scores in 1/24 nat: an int8 holds +-5.3
MAX_PAIRS = 120_000
PAGE = re.compile(r"zh.*\.(?:html?|page|xml)$", re.IGNORECASE)
TAG = re.compile(r"<(script|style).*?</\1>|<[^>]*>", re.DOTALL)
ROFF = re.compile(r"\\f.|\\[-&]")


@dataclass(frozen=True)
class Source:
    """Counted text: its name with version, licence, weight, and int64[0x10000 * ...] pairs as (first, second,
    count)."""

    name: str
    licence: str
    weight: float
    pairs: npt.NDArray[np.int64]  # first << 16 | second
    counts: npt.NDArray[np.float64]


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.bigram_table", description="Count the bigram table.")
    parser.add_argument("--out", type=Path, required=True, help="the table; sources are named in a .txt beside it")
    parser.set_defaults(command=command)
    return run_command("bigram table", parser, argv)


def command(arguments: argparse.Namespace) -> None:
    """Fetch, count, write."""
    sources = list(read_sources())
    table = build(sources)
    durable.write_bytes(arguments.out, table)
    durable.write_bytes(arguments.out.with_suffix(".txt"), write_notice(sources).encode())
    print(f"{arguments.out}: {len(table):,} bytes", file=sys.stderr)


def build(sources: Iterable[Source]) -> bytes:
    """The table of some sources: the most frequent characters, and the pairs that an unseen score would misjudge most.

    A pair is worth its count times the difference its entry makes.
    """
    sources = list(sources)
    keys = np.concatenate([source.pairs for source in sources])
    weights = np.concatenate([source.counts * source.weight for source in sources])
    unigrams = np.bincount(keys >> 16, weights, 0x10000) + np.bincount(keys & 0xFFFF, weights, 0x10000)
    order = np.lexsort((np.arange(0x10000), -unigrams))
    chosen = order[: min(bigrams.SIZE - 1, int((unigrams > 0).sum()))]
    numbers = np.zeros(0x10000, np.int64)
    numbers[chosen] = np.arange(1, len(chosen) + 1)
    first, second = numbers[keys >> 16], numbers[keys & 0xFFFF]
    known = (first > 0) & (second > 0)
    counts = np.bincount(first[known] * bigrams.SIZE + second[known], weights[known], bigrams.SIZE**2)
    total = float(round(counts.sum()))
    log_counts = np.rint(UNIT * np.log(np.maximum(unigrams[chosen] / 2, 1.0))).astype(np.int16)
    seen = np.flatnonzero(counts)
    level = np.concatenate(([0], log_counts)).astype(np.float64) / UNIT
    expected = np.exp(level[seen // bigrams.SIZE] + level[seen % bigrams.SIZE] - np.log(total))
    exact = bigrams.expected_score(counts[seen], expected, SMOOTHING)
    worth = counts[seen] * np.abs(exact - bigrams.expected_score(0.0, expected, SMOOTHING))
    kept = np.sort(np.lexsort((seen, -worth))[:MAX_PAIRS])
    scores = np.clip(np.rint(UNIT * exact[kept]), -bigrams.MAX_SCORE, bigrams.MAX_SCORE).astype(np.int8)
    header = {"unit": UNIT, "smoothing": SMOOTHING, "total": total}
    return bigrams.pack(header, "".join(map(chr, chosen.tolist())), log_counts, seen[kept], scores)


def count(name: str, licence: str, weight: float, lines: Iterable[str]) -> Source:
    """Count adjacent Han pairs of distinct lines, Traditional characters as Simplified."""
    text = "\n".join(dict.fromkeys(lines))
    codes = _fold()[np.frombuffer(text.encode("utf-16-le", "replace"), "<u2")].astype(np.int64)
    adjacent = (codes[:-1] > 0) & (codes[1:] > 0)
    keys, counts = np.unique(codes[:-1][adjacent] << 16 | codes[1:][adjacent], return_counts=True)
    return Source(name, licence, weight, keys, counts.astype(np.float64))


def count_words(name: str, licence: str, weight: float, words: Iterable[tuple[str, int]]) -> Source:
    """Count the pairs inside words by the words' frequencies."""
    fold = _fold()
    totals: dict[int, float] = {}
    for word, frequency in words:
        codes = [int(fold[ord(character)]) if ord(character) < 0x10000 else 0 for character in word]
        for a, b in pairwise(codes):
            if a and b:
                totals[a << 16 | b] = totals.get(a << 16 | b, 0.0) + frequency
    keys = np.array(sorted(totals), np.int64)
    return Source(name, licence, weight, keys, np.array([totals[key] for key in keys.tolist()]))


def write_notice(sources: Iterable[Source]) -> str:
    """What stands beside the table."""
    lines = [
        "Sources of bigrams.table, made by `python -m tools.bigram_table`. The table holds how often pairs of "
        "characters",
        "stand side by side in these texts together, and none of the texts.",
        "",
        *(
            f"{source.name}: {round(source.counts.sum()):,} pairs, weight {source.weight:g}; licence {source.licence}"
            for source in sources
        ),
    ]
    return "\n".join(lines) + "\n"


def read_sources() -> Iterator[Source]:
    """Fetch and count every source."""
    with tempfile.TemporaryDirectory() as scratch:
        apt = Apt(Path(scratch))
        for package, licence in DOCUMENTATION.items():
            archive = apt.download(package)
            unpacked = Path(scratch) / package
            run(["dpkg", "-x", str(archive), str(unpacked)])
            name = f"Debian {package} {run(['dpkg', '-f', str(archive), 'Version']).strip()}"
            archive.unlink()
            yield count(name, licence, 1.0, _documentation(unpacked))
        run(["npm", "pack", "--silent", "--pack-destination", scratch, POETRY])
        [packed] = Path(scratch).glob("*.tgz")
        members = dict(_members(packed))
        for kind, wanted, weight in (("classics", CLASSICS, 1.0), ("verse", VERSE, 0.1)):
            texts = (text for path, text in members.items() if wanted.search(path))
            yield count(f"npm {POETRY}, {kind}", "MIT; the works are in the public domain", weight, _strings(texts))
    words = files("jieba").joinpath("dict.txt").read_text("utf-8")
    rows = (line.split(" ") for line in words.splitlines())
    yield count_words(f"PyPI jieba {version('jieba')}, dict.txt", "MIT", 0.2, ((row[0], int(row[1])) for row in rows))


def _documentation(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*"), key=lambda path: path.as_posix()):
        name = path.relative_to(root).as_posix()
        if path.is_symlink() or not path.is_file():
            continue
        if "/man/zh" in name and name.endswith(".gz"):
            yield from ROFF.sub("", gzip.decompress(path.read_bytes()).decode("utf-8", "ignore")).split("\n")
        elif "/fortunes/" in name and path.suffix == "":
            yield from path.read_text("utf-8", "ignore").split("\n")
        elif PAGE.search(name):
            text = TAG.sub("", path.read_bytes().decode("utf-8", "ignore"))
            yield from html.unescape(text).split("\n")


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None and member.name.endswith(".json"):
                yield member.name, file.read()


def _strings(texts: Iterable[bytes]) -> Iterator[str]:
    """Every string of some JSON files but addresses and ids, in order."""
    for text in texts:
        waiting: list[Any] = [json.loads(text)]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict):
                waiting.extend(value[key] for key in reversed(value) if key not in ("author", "biography", "desc"))
            elif isinstance(value, list):
                waiting.extend(reversed(value))


def _fold() -> npt.NDArray[np.uint16]:
    """uint16[0x10000]: the Simplified form of each Han character of the main block, 0 for everything else."""
    fold = np.zeros(0x10000, np.uint16)
    fold[0x4E00:0xA000] = np.arange(0x4E00, 0xA000)
    for traditional, simplified in script_pairs()[0].items():
        if 0x4E00 <= ord(traditional) < 0xA000 and 0x4E00 <= ord(simplified) < 0xA000:
            fold[ord(traditional)] = ord(simplified)
    return fold


if __name__ == "__main__":
    sys.exit(main())
