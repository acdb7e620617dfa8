"""`python -m corpus quality label`: a rubric's judgement of documents by a server, as a file of JSON lines.

What is sent is made before it is told, and told before it is sent: beginning, middle and end of each document,
personal data masked with what stands around the cuts, web addresses left out. The documents are those of the smallest
hashes, so a larger --max-documents takes in a smaller one.

A line is appended and synced when its answer is there (a few milliseconds beside a second of the server's): a killed
run loses the questions in flight. The file is its own lock. An answer stands for its prompt and model; a failed
document is asked again by the next run, and its later line counts.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import heapq
import json
import math
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corpus import safe
from corpus.engine import durable
from corpus.engine.cli import add_examples
from corpus.engine.errors import InputError, LockHeld, UsageError
from corpus.filters.quality.model import ADVERTISEMENT, GOOD, KINDS
from corpus.normalize import normalize_with_changes
from corpus.personal_data import find_personal_data
from corpus.personal_data.window import Span
from corpus.quality import chat

RUBRIC = Path(__file__).with_name("rubric.md")
ATTEMPTS = 3
BACKOFF_SECONDS = 1.0
MARGIN_CHARS = 2048  # read around a cut, to know what is cut
GAP = "\n[...]\n"
BYTES_A_TOKEN = 3  # a Han character, or three letters
ANSWER_TOKENS = 120  # usual ones
MAX_LINE_BYTES = 64 << 10
EXAMPLES = f"""
python -m corpus quality label --input in.jsonl --endpoint http://127.0.0.1:8000/v1 --model NAME --out labels.jsonl
{chat.KEY}=... python -m corpus quality label --input 'data/*.parquet' --column content --max-documents 500 \\
    --endpoint https://HOST/v1 --model NAME --price-in 0.5 --price-out 2 --max-cost 5 --out labels.jsonl
python -m corpus quality train --labels labels.jsonl --input in.jsonl --out quality.model
"""
STARTS = b'{"id": "'  # of every line

Parts = list[tuple[str, str, str]]  # what stands before a piece, the piece, what stands behind


def add_arguments(label: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    label.add_argument("--input", nargs="+", required=True, metavar="GLOB", help="the documents")
    label.add_argument("--column", default="text", metavar="NAME", help="the field or column with the text")
    label.add_argument("--endpoint", required=True, metavar="URL", help="what /chat/completions is below")
    label.add_argument("--model", required=True, metavar="NAME", help="the model's name there")
    label.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON lines; run again to go on")
    label.add_argument("--rubric", type=Path, default=RUBRIC, metavar="FILE", help="default: the shipped rubric.md")
    for name, value, what in (
        ("max-documents", 1000, "a fixed sample of more"),
        ("max-characters", 2000, "of a document: beginning, middle and end"),
        ("parallel", 4, "questions at a time"),
        ("timeout", 60.0, "seconds for one answer"),
    ):
        label.add_argument(
            f"--{name}", type=type(value), default=value, metavar="N", help=f"{what} (default: %(default)g)"
        )
    for name, what in (
        ("price-in", "of a million tokens sent"),
        ("price-out", "of a million tokens answered"),
        ("max-cost", "refuse what may cost more"),
    ):
        label.add_argument(f"--{name}", type=float, metavar="X", help=what)
    label.add_argument("--yes", action="store_true", help="send without asking")
    add_examples(label, EXAMPLES)


def label(arguments: argparse.Namespace, texts: Iterable[str]) -> None:
    """Ask, and append what is answered; raises InputError where documents stay without an answer."""
    _check(arguments)
    rubric = durable.read_bytes(arguments.rubric, chat.MAX_ANSWER_BYTES).decode("utf-8", "replace")
    server = chat.Server(
        chat.check_endpoint(arguments.endpoint),
        arguments.model,
        rubric,
        chat.kinds_of(rubric),
        arguments.timeout,
        chat.key_of_environment(),
    )
    prompt = durable.digest([rubric, chat.FORM, chat.SETTINGS, arguments.max_characters])
    stamp = {"model": server.model, "prompt": prompt}
    known = _answered(arguments.out, stamp)
    sampled = sample(texts, arguments.max_documents, arguments.max_characters)
    documents = {name: masked(parts) for name, parts in sampled.items() if name not in known}
    print(f"{len(sampled):,} documents, {len(sampled) - len(documents):,} answered already", file=sys.stderr)
    if documents:
        _agree(arguments, server, documents)
    with _appending(arguments.out) as file:
        known = _answered(arguments.out, stamp)  # another run may have ended meanwhile
        documents = {name: text for name, text in documents.items() if name not in known}
        failed = Counter[str]()
        with closing(_answers(server, documents, arguments.parallel)) as lines:
            for number, line in enumerate(lines, 1):
                failed[line.get("error", "")] += 1
                _append(file, line | ({} if "error" in line else stamp))
                if number % 100 == 0:
                    print(f"{number:,} of {len(documents):,} asked", file=sys.stderr)
    print(f"{arguments.out}: {failed.pop('', 0):,} answers more", file=sys.stderr)
    if failed:
        why = ", ".join(f"{reason} {count:,}" for reason, count in failed.most_common())
        raise InputError(f"{failed.total():,} documents without an answer ({why}). Run it again to ask for them again.")


def document_id(text: str) -> str:
    """What a document is called in labels."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def sample(texts: Iterable[str], count: int, max_characters: int) -> dict[str, Parts]:
    """The pieces of the documents of the smallest ids, by id; equal texts are one."""
    heap: list[tuple[int, str]] = []
    chosen: dict[str, Parts] = {}
    for text in texts:
        name = document_id(text)
        if name in chosen or not text.strip() or (len(heap) == count and name > heap[0][1]):
            continue
        chosen[name] = cut(normalize_with_changes(text)[0], max_characters)
        heapq.heappush(heap, (-int(name, 16), name))
        if len(heap) > count:
            del chosen[heapq.heappop(heap)[1]]
    return dict(sorted(chosen.items()))


def cut(text: str, limit: int) -> Parts:
    """Beginning, middle and end, together at most `limit` characters, each between MARGIN_CHARS that are not sent."""
    third = (limit - 2 * len(GAP)) // 3
    middle = (len(text) - third) // 2
    pieces = [(0, len(text))] if len(text) <= limit else [(at, third) for at in (0, middle, len(text) - third)]
    return [
        (text[max(0, at - MARGIN_CHARS) : at], text[at : at + size], text[at + size : at + size + MARGIN_CHARS])
        for at, size in pieces
    ]


def masked(parts: Parts) -> str:
    """The pieces as they are sent, a mark in place of personal data and of web addresses, whole or cut.

    >>> masked([("电话138", "00138000，见https://example.org/论语", "")])
    '<MOBILE>，见<URL>论语'
    """
    pieces = []
    for before, piece, behind in parts:
        around, first, last = before + piece + behind, len(before), len(before) + len(piece)
        around = around.replace("```", "'''").replace("~~~", "'''")  # a fence that is cut would make prose to code
        data = np.frombuffer(around.encode(), np.uint8)
        array = pa.array([around], pa.large_string())
        spans = find_personal_data(array, np.array([0, len(data)], np.int64), data).spans.get(0, [])
        spans += [Span(*match.span(), "url") for match in safe.URL.finditer(around)]
        shown, done = [], first
        for start, end, kind in sorted(spans):
            if end > done and start < last:
                shown += [around[done:start], f"<{kind.upper()}>"]
                done = end
        pieces.append("".join([*shown, around[done:last]]))
    return GAP.join(pieces)


def read_labels(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of labels but a torn last one; raises UsageError where one is not of this command."""
    with path.open("rb") as file:
        while data := file.readline(MAX_LINE_BYTES):
            if not data.endswith(b"\n") and data.startswith(STARTS[: len(data)]) and len(data) < MAX_LINE_BYTES:
                return
            try:
                line = json.loads(data)
                is_label = "error" in line or (isinstance(line["kind"], str) and type(line["worth"]) is int)
                is_ours = data.startswith(STARTS) and isinstance(line["id"], str) and is_label
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                is_ours = False
            if not is_ours:
                raise UsageError(f"{path}: is no file of labels. Choose another.")
            yield line


def classes_of_labels(path: Path, texts: Iterable[str], *, by_kind: bool = False) -> dict[str, list[str]]:
    """Documents by the classes of a filter's model: `good` with a worth above 1 is high, advertisements their own.

    By kind each kind is a class, those of the rubric of ours first and `good` before all.
    """
    classes: dict[str, list[str]] = {name: [] for name in (KINDS if by_kind else ("high", "low", ADVERTISEMENT))}
    lines = {line["id"]: line for line in read_labels(path) if "kind" in line}
    for text in texts:
        if line := lines.get(document_id(text)):
            kind, is_high = line["kind"], line["kind"] == GOOD and line["worth"] > 1
            if not by_kind and kind != ADVERTISEMENT:
                kind = "high" if is_high else "low"
            classes.setdefault(kind, []).append(text)
    return classes


def _check(arguments: argparse.Namespace) -> None:
    prices, most = (arguments.price_in, arguments.price_out), arguments.max_cost
    if arguments.max_documents < 1 or not 100 <= arguments.max_characters <= 100_000:
        raise UsageError("--max-documents is at least 1, --max-characters 100 to 100,000.")
    if not 1 <= arguments.parallel <= 64 or not 0 < arguments.timeout <= 3600:
        raise UsageError("--parallel: 1 to 64; --timeout: up to 3,600 seconds.")
    if not all(0 <= value < math.inf for value in (*prices, most) if value is not None):
        raise UsageError("--price-in, --price-out and --max-cost: 0 or more.")
    if None in prices and (*prices, most) != (None, None, None):
        raise UsageError("--price-in and --price-out: give both; --max-cost needs them.")


def _agree(arguments: argparse.Namespace, server: chat.Server, documents: dict[str, str]) -> None:
    """Tell what would be sent, where to and for how much; raises UsageError unless that is wanted."""
    count, characters = len(documents), sum(map(len, documents.values()))
    asked = (message["content"] for text in documents.values() for message in server.question(text))
    tokens = sum(math.ceil(len(text.encode()) / BYTES_A_TOKEN) for text in asked)
    most = count * chat.MAX_ANSWER_TOKENS
    said = (
        f"to send: {count:,} documents, {characters:,} characters of them, to {server.endpoint} ({server.model})\n"
        "personal data are masked and web addresses left out before; the rubric goes with each document\n"
        f"estimated tokens: {tokens:,} in, {count * ANSWER_TOKENS:,} out (at most {most:,}); "
        f"up to {ATTEMPTS} times as many where answers fail"
    )
    if arguments.price_in is not None:
        usual, worst = (
            (tokens * arguments.price_in + out * arguments.price_out) / 1e6 for out in (count * ANSWER_TOKENS, most)
        )
        said += f"\nestimated cost: {usual:,.4f}, at most {ATTEMPTS * worst:,.4f}"
        if arguments.max_cost is not None and ATTEMPTS * worst > arguments.max_cost:
            raise UsageError(f"{said}\nThat is above --max-cost {arguments.max_cost:g}; nothing was sent.")
    print(said, file=sys.stderr)
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nothing was sent: nobody can be asked here. Give --yes if that is wanted.")
    print("Send them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was sent.")


def _answers(server: chat.Server, documents: dict[str, str], parallel: int) -> Generator[dict[str, Any]]:
    """A line for each document as its answer comes; what ends the run ends the questions too."""
    stop = threading.Event()
    with ThreadPoolExecutor(parallel) as threads:
        futures = [threads.submit(_ask, server, *document, stop) for document in documents.items()]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)


def _ask(server: chat.Server, name: str, text: str, stop: threading.Event) -> dict[str, Any]:
    why = "stopped"
    for attempt in range(ATTEMPTS):
        started = time.monotonic()
        try:
            found = server.ask(text)
            return {"id": name, **found, "seconds": round(time.monotonic() - started, 3)}
        except chat.NoAnswer as error:
            why, seconds = str(error), error.seconds + random.uniform(0.5, 1) * BACKOFF_SECONDS * 2**attempt
            if not error.again or attempt + 1 == ATTEMPTS or stop.wait(seconds):
                break
    return {"id": name, "error": why}


def _answered(path: Path, stamp: dict[str, str]) -> set[str]:
    if not path.exists():
        return set()
    return {line["id"] for line in read_labels(path) if "kind" in line and line.items() >= stamp.items()}


@contextmanager
def _appending(path: Path) -> Iterator[int]:
    """The file for lines to be added, locked; a line torn by a kill is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeld(f"{path}: another run writes it. Wait for it, stop it, or choose another file.") from None
        except OSError as error:
            if error.errno not in durable.NO_LOCKS_HERE:
                raise
        size = os.fstat(file).st_size
        tail = os.pread(file, MAX_LINE_BYTES, max(0, size - MAX_LINE_BYTES))
        os.ftruncate(file, size - len(tail) + tail.rfind(b"\n") + 1)
        durable.sync_folder(path.parent)
        yield file
    finally:
        os.close(file)


def _append(file: int, line: dict[str, Any]) -> None:
    data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
    while data:
        data = data[os.write(file, data) :]
    os.fsync(file)
