"""The whole filter on one core, beside the machine's limits and the peers.

The same documents for all. Peers get a spread sample of them (they are two orders slower), and ours is timed on that
sample again, so that a ratio compares equal documents. "Everything" is what a build does: normalisation, line edits,
every statistic (the score of a quality model with drawn weights among them), every rule of the recipe, personal data.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corpus.filters import Filter, edits, load
from corpus.filters.columns import text_column
from corpus.filters.decide import first_failed
from corpus.filters.edits import Edits
from corpus.filters.measure import measure_all
from corpus.filters.quality.model import Header, Model
from corpus.filters.statistic import Batch
from tools.bench.corpus import recombine
from tools.bench.inputs import read_documents, spread
from tools.bench.peers.environment import DATATROVE
from tools.bench.timing import num_bytes, one_core, seconds_of, show, speed

MAX_BYTES = 32_000_000  # of documents; more says nothing new
PEER_BYTES = 1_000_000
BATCH_DOCUMENTS = 256
QUALITY_BITS = 18
STREAM_BYTES = 1_000_000_000
KERNELS = {  # what is told of a kernel, and the property of a batch that runs it
    "length, characters, script, lines": "lines",
    "repetition": "repetition",
    "words of the block lists": "blocklist",
    "personal data": "personal",
    "bigrams": "bigrams",
    "quality model": "quality",
}
PATTERNS = {  # as anyone would write them with `re`: the kinds and boundaries that Chinese text needs
    "mobile": r"(?<!\d)(?:\+?86[- ]?)?1[3-9]\d{9}(?!\d)",
    "id_card": r"(?<!\d)[1-9]\d{5}(?:18|19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx](?!\d)",
    "bank_card": r"(?<!\d)\d{16,19}(?!\d)",
    "email": r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "ip": r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])",
    "contact": r"(?:微信|vx|wx|QQ)号?[:：]\s*[A-Za-z0-9_-]{5,20}",
}


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    judge = with_quality_model(load(arguments.recipe))
    texts = pa.array(spread(list(read_documents(arguments)), MAX_BYTES), pa.large_string())
    few = pa.array(spread(texts.to_pylist(), PEER_BYTES), pa.large_string())
    print(f"{len(texts):,} documents, {num_bytes(texts) / 1e6:,.1f} MB of text; recipe {arguments.recipe}; one core\n")
    with one_core() as cores:
        limits(texts)
        parts(texts, judge)
        compare(few, judge, arguments.peers)
    two_threads(texts, judge, cores)
    if arguments.memory:
        memory(texts, arguments.recipe)


def limits(texts: pa.LargeStringArray) -> None:
    """What no filter can beat: moving the bytes, and making Python strings of them."""
    size = num_bytes(texts)
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    target = np.empty_like(data)
    raw = texts.cast(pa.large_binary()).to_pylist()
    show("limit: memcpy", speed(size, lambda: np.copyto(target, data)))
    show("limit: bytes.decode, a document a call", speed(size, lambda: [text.decode() for text in raw]))
    show("limit: Arrow column to a Python list", speed(size, texts.to_pylist))
    print()


def parts(texts: pa.LargeStringArray, judge: Filter) -> None:
    """The whole and what it is made of, each part once: kernels, not families, as four families share one kernel."""
    size = num_bytes(texts)
    kinds = judge.config.edit.personal_data
    normal = edits.normalize(texts, Edits())
    clean = edits.remove_lines(normal, Edits())  # what kernels are given
    measured = Batch(clean, judge.resources)
    work: dict[str, Callable[[], Any]] = {
        "check UTF-8": lambda: text_column(texts, "text"),
        "normalise": lambda: edits.normalize(texts, Edits()),
        "remove boilerplate lines": lambda: edits.remove_lines(normal, Edits()),
        **{f"kernel: {name}": partial(_run_kernel, name, clean, judge) for name in KERNELS},
        f"mask {len(kinds)} kinds of it": lambda: edits.mask(clean, measured.personal, kinds, Edits()),
        "decide, and the columns of all statistics": lambda: _without_kernels(measured, judge),
    }
    for kernel in KERNELS.values():  # of `measured`, so that what follows them is timed alone
        getattr(measured, kernel)
    whole = seconds_of(lambda: judge.apply(texts))
    show("everything: apply", size / 1e6 / whole, note=share_kept(judge, texts))
    told = 0.0
    for name, part in work.items():
        seconds = seconds_of(part)
        told += seconds
        show(f"  {name}", size / 1e6 / max(seconds, 1e-9), note=f"{seconds / whole:6.1%} of the whole")
    print(f"{'  these together':<76}{told / whole:6.1%} of the whole\n")
    plain = speed(size, _with_re(texts.to_pylist(), judge.resources.blocklist.words))
    ours = speed(size, lambda: _words_and_masks(texts, judge))
    show(f"re: {len(PATTERNS)} kinds of personal data and the words", plain)
    show("ours: personal data and the words", ours, plain)
    print()


def _run_kernel(name: str, texts: pa.LargeStringArray, judge: Filter) -> None:
    getattr(Batch(texts, judge.resources), KERNELS[name])


def _without_kernels(batch: Batch, judge: Filter) -> None:
    """What is left when every kernel of `batch` has run: numpy on their columns, and the rules."""
    first_failed(measure_all(batch), judge.limits, len(batch.texts))


def _words_and_masks(texts: pa.LargeStringArray, judge: Filter) -> None:
    batch = Batch(texts, judge.resources)
    edits.mask(texts, batch.personal, judge.config.edit.personal_data, Edits())
    _ = batch.blocklist


def _with_re(texts: Sequence[str], words: Sequence[str]) -> Callable[[], None]:
    """The same work as anyone would do it with `re`: patterns one after another, and one alternation of words."""
    found = re.compile("|".join(map(re.escape, words)))
    patterns = [re.compile(pattern) for pattern in PATTERNS.values()]

    def work() -> None:
        for text in texts:
            for pattern in patterns:
                pattern.sub("", text)
            found.findall(text)

    return work


def with_quality_model(judge: Filter) -> Filter:
    """The filter with a quality model of three classes over characters and bigrams, as a recipe may name one.

    Its weights are drawn, not trained: the time does not depend on them.
    """
    weights = np.random.default_rng(0).integers(-999, 1000, (1 << QUALITY_BITS, 2)).astype(np.int16)
    header = Header(
        classes=("low", "high", "advertisement"),
        orders=(1, 2),
        bits=QUALITY_BITS,
        seed=1,
        unit=1e-3,
        bias=(0.0, 0.0),
        temperature=1.0,
        weights="",
    )
    judge.resources = replace(judge.resources, quality=Model(header, weights))
    return judge


def compare(texts: pa.LargeStringArray, judge: Filter, install: bool) -> None:
    """datatrove and fastText on a sample, each in a child; ours on the same documents before and after."""
    if install:
        DATATROVE.install()
    if not DATATROVE.is_installed():
        print("datatrove and fastText: not installed; --peers installs them below build/peers\n")
        return
    size = num_bytes(texts)
    print(f"the same {len(texts):,} documents ({size / 1e6:,.2f} MB) for each of these:")
    before = speed(size, lambda: judge.apply(texts))
    stock = DATATROVE.run_on(texts.to_pylist(), "datatrove_rules.py", "fineweb")
    chinese = DATATROVE.run_on(texts.to_pylist(), "datatrove_rules.py", "fineweb2")
    classifier = DATATROVE.run_on(texts.to_pylist(), "fasttext_predict.py")
    ours = (before + speed(size, lambda: judge.apply(texts))) / 2
    show("datatrove 0.10.1, FineWeb's rules as they come", stock["mb_a_second"], note=_kept(stock))
    show("datatrove 0.10.1, FineWeb-2 cmn_Hani", chinese["mb_a_second"], note=_kept(chinese))
    show("ours, everything", ours, chinese["mb_a_second"], share_kept(judge, texts))
    show("fastText predict, characters and bigrams", classifier["mb_a_second"])
    score = speed(size, lambda: Batch(texts, judge.resources).quality)
    show("our quality model, characters and bigrams", score, classifier["mb_a_second"])
    print()


def two_threads(texts: pa.LargeStringArray, judge: Filter, cores: int) -> None:
    """Batches from a pool of two threads, time on the clock: kernels release the interpreter."""
    if cores < 2:
        print("two threads: only one core here\n")
        return
    table = pa.table({"text": texts})
    batches = [table.slice(start, BATCH_DOCUMENTS) for start in range(0, len(texts), BATCH_DOCUMENTS)]
    rates = []
    for count in (1, 2):
        with ThreadPoolExecutor(count) as pool:
            work = partial(lambda pool: list(pool.map(judge.apply, batches)), pool)
            rates.append(num_bytes(texts) / 1e6 / seconds_of(work, time.perf_counter))
    show("one thread, on the clock", rates[0])
    show("two threads", rates[1], rates[0])


def memory(texts: pa.LargeStringArray, recipe: str) -> None:
    """The peak resident memory of the command line on a JSONL.zst of 1 GB."""
    with tempfile.TemporaryDirectory(dir="build" if Path("build").is_dir() else None) as folder:
        path = Path(folder, "big.jsonl.zst")
        size = recombine.write([texts.to_pylist()], Path(folder, "parts"), STREAM_BYTES, "jsonl.zst")
        with open(path, "wb") as file:
            for part in sorted(Path(folder, "parts").iterdir()):
                file.write(part.read_bytes())
        command = [sys.executable, "-m", "corpus", "filter", "--recipe", recipe, "--input", str(path)]
        command += ["--out", str(Path(folder, "out"))]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        rate = size / 1e6 / (usage.ru_utime + usage.ru_stime)
        note = f"peak {usage.ru_maxrss / 1e3:,.0f} MB resident; exit code {process.returncode}"
        show("command line, JSONL.zst of 1 GB to JSONL.zst", rate, note=note)


def share_kept(judge: Filter, texts: pa.LargeStringArray) -> str:
    """How many of the documents a filter keeps, in words."""
    kept = int(judge.apply(texts).kept.sum())
    return f"keeps {kept:,} of {len(texts):,} ({kept / len(texts):.1%})"


def _kept(found: dict[str, Any]) -> str:
    reasons = ", ".join(f"{name.split(': ')[1]} {count:,}" for name, count in list(found["reasons"].items())[:3])
    return f"keeps {found['kept']:,} of {found['documents']:,} ({found['kept'] / found['documents']:.1%}); {reasons}"
