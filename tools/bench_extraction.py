"""Extraction of main text: how fast and how right, beside what one would use instead, in one run.

    python -m tools.bench_extraction --html build/demo-input/demo-0000.warc.gz

CPU seconds, the median of three runs; MB are 10^6 bytes of HTML. Two sets of pages: the given ones (a WARC file or a
folder of .html files) and labelled pages of our own templates (tools/pages). The limits are a parser that builds a tree
and does nothing with it, and one that writes the tree's whole text. Quality is measured on the labelled pages, once as
they are and once without their classes, ids and roles: what extraction owes to names that we know ourselves.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from corpus.encoding import decode
from corpus.extract import ExtractConfig, RefusedPage, extract_html
from corpus.extract.child import pack
from corpus.sandbox import Limits, Sandbox
from corpus.sources import Record, SourcesConfig, read
from corpus.sources.pages import BATCH_BYTES, CHILD
from tools.pages import LabelledPage, Score, make_page, score
from tools.pages.templates import TEMPLATES

MAX_PAGES = 400
MAX_SLOW_PAGES = 60  # of them for trafilatura
PAGES_PER_TEMPLATE = 20
RUNS = 3
NAMES = re.compile(r"""\s(?:class|id|role)=(?:"[^"]*"|'[^']*'|[^\s>]+)""")
BACKENDS = ("wenhai", "resiliparse", "trafilatura")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench_extraction", description=__doc__.splitlines()[0])
    parser.add_argument("--html", type=Path, help="a WARC file, or a folder of .html files in UTF-8")
    arguments = parser.parse_args()
    labelled = [make_page(name, seed) for name in TEMPLATES for seed in range(PAGES_PER_TEMPLATE)]
    if arguments.html:
        speeds(f"{arguments.html.name}", list(given_pages(arguments.html)))
    speeds("labelled pages", [page.html for page in labelled])
    quality("F1 by template", labelled, keep_names=True)
    quality("F1 by template, without class, id and role", labelled, keep_names=False)


def given_pages(path: Path) -> Iterator[str]:
    """The text of at most MAX_PAGES pages."""
    if path.is_dir():
        files = sorted(path.rglob("*.html"))
        yield from (file.read_text("utf-8", "replace") for file in files[:: max(1, len(files) // MAX_PAGES)])
        return
    records = (record for record in read(str(path), SourcesConfig()) if isinstance(record, Record))
    for _, record in zip(range(MAX_PAGES), records, strict=False):
        yield decode(record.raw, record.charset).text


def speeds(title: str, pages: list[str]) -> None:
    """MB/s of each way over the same pages."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    size = num_bytes(pages)
    slow = pages[:: max(1, len(pages) // MAX_SLOW_PAGES)]
    config = ExtractConfig()
    parse = size / cpu(lambda: [HTMLTree.parse(page) for page in pages])
    trafilatura = num_bytes(slow) / cpu(lambda: [run("trafilatura", page) for page in slow])
    print(f"\n{title}: {len(pages):,} pages, {size:.1f} MB")
    print(f"{'':44}{'MB/s':>8}{'of parse':>10}{'of trafilatura':>16}")
    for name, speed in (
        ("limit: resiliparse builds the tree", parse),
        ("limit: the same, and the tree's whole text", size / cpu(lambda: [plain(page) for page in pages])),
        (
            "resiliparse main_content",
            size / cpu(lambda: [extract_plain_text(page, main_content=True) for page in pages]),
        ),
        ("trafilatura fast", trafilatura),
        ("ours", size / cpu(lambda: [extract_html(page, config) for page in pages])),
        *in_child(pages, size),
    ):
        print(f"{name:44}{speed:8.1f}{speed / parse:10.2f}{speed / trafilatura:16.1f}")


def in_child(pages: list[str], size: float) -> Iterator[tuple[str, float]]:
    """From bytes with decoding, in this process and in the killable one (CPU of both processes)."""
    from corpus.extract.child import extract_payload

    items = [pack(ExtractConfig(), "utf-8", page.encode()) for page in pages]
    batches: list[list[bytes]] = [[]]
    for item in items:
        if sum(map(len, batches[-1])) > BATCH_BYTES:
            batches.append([])
        batches[-1].append(item)
    yield "ours, from bytes", size / cpu(lambda: [extract_payload(item) for item in items])
    with Sandbox(CHILD, Limits(60.0, 1024)) as sandbox:
        seconds = []
        for _ in range(RUNS + 1):
            start = time.process_time() + sandbox.cpu_seconds()
            for batch in batches:
                sandbox.map(batch)
            seconds.append(time.process_time() + sandbox.cpu_seconds() - start)
        yield "ours, from bytes, in the killable child", size / statistics.median(seconds[1:])


def plain(page: str) -> str:
    """The whole text of a page, by resiliparse."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    return str(extract_plain_text(HTMLTree.parse(page), main_content=False))


def run(backend: str, page: str) -> str:
    """The main text of a page by a backend; nothing where it refuses the page."""
    try:
        return extract_html(page, ExtractConfig.model_validate({"backend": backend})).text
    except RefusedPage:
        return ""


def quality(title: str, labelled: list[LabelledPage], keep_names: bool) -> None:
    """Precision, recall and F1 of character 4-grams, means over each template's pages."""
    print(f"\n{title} (precision, recall, F1 of character 4-grams)")
    print(f"{'':20}" + "".join(f"{backend:>24}" for backend in BACKENDS))
    means: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for template in TEMPLATES:
        cells = []
        for backend in BACKENDS:
            found = [
                score(page, run(backend, page.html if keep_names else NAMES.sub("", page.html)))
                for page in labelled
                if page.template == template
            ]
            means[backend].append(statistics.mean(one.f1 for one in found))
            cells.append(cell(found))
        print(f"{template:20}" + "".join(f"{text:>24}" for text in cells))
    print(f"{'mean F1':20}" + "".join(f"{statistics.mean(means[backend]):>24.3f}" for backend in BACKENDS))


def cell(found: list[Score]) -> str:
    """Mean precision, recall and F1 of scores, in one cell."""
    return " ".join(
        f"{statistics.mean(values):.3f}"
        for values in zip(*((one.precision, one.recall, one.f1) for one in found), strict=True)
    )


def cpu(work: Callable[[], object]) -> float:
    """Median CPU seconds of the work."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def num_bytes(pages: list[str]) -> float:
    """Megabytes of pages in UTF-8."""
    return sum(len(page.encode()) for page in pages) / 1e6


if __name__ == "__main__":
    main()
