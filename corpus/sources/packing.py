"""Sources with their files, and how files are packed into tasks so that a new file changes its own task.

Files stand in the order of their labels. A pack ends behind a file whose hash says so, with a chance that grows with
its size (content-defined chunking, Muthitacharoen et al. 2001, section 3.1); one that is larger than `task_bytes` is
cut where hashes are least. So a file that comes in or goes changes its own pack, and seldom a neighbour, where it moves
a cut: no function of the inputs alone can do with less, but one task a file. A task is called by its source and its
first file, not by a number.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import UsageError
from corpus.engine.input_digests import Digests, range_of
from corpus.engine.inputs import LeftOut, common_labels, list_inputs
from corpus.engine.stage import Task
from corpus.engine.storage import File, open_stream
from corpus.sources import can_be_cut
from corpus.sources.compression import magic_of
from corpus.sources.config import InputConfig, SourcesConfig
from corpus.sources.kinds import kind_by

MIN_SPAN_BYTES = 16 << 20
HEAD_BYTES = 1 << 16
MEAN_PACK = 0.5  # of task_bytes
KEY_CHARS = 40
HASH_DIGITS = 16
SPAN_DIGITS = 6


@dataclass(frozen=True)
class Source:
    """A source of a build; `key` begins the names of its tasks and shards and holds no hyphen."""

    key: str
    config: SourcesConfig = field(default_factory=SourcesConfig)
    files: tuple[File, ...] = ()

    @property
    def digest(self) -> str:
        """Of all that decides which documents come out of its files."""
        return durable.digest(self.config.reading)


def key_of(shard: str) -> str:
    """The key of the source that a task or shard is of.

    >>> key_of("news_2024-0123456789abcdef-00000")
    'news_2024'
    """
    return shard.split("-", 1)[0]


def find_sources(
    configs: Sequence[SourcesConfig],
    inputs: Sequence[str] = (),
    crawled: Sequence[str] = (),
    left_out: LeftOut | None = None,
    digests: Digests | None = None,
) -> tuple[Source, ...]:
    """Sources with their files, keys made of their names, and labels that tell files apart.

    Args:
        configs: those of a recipe.
        inputs: files, folders, globs or URLs of the source without a path.
        crawled: files that a crawl left, for the same source, or one of their own.
        left_out: takes what is found and is no input (`list_inputs`).
        digests: of inputs that need not be hashed again.

    Raises:
        UsageError: a pattern matches nothing, a file belongs to two sources, two sources have no path, or `inputs` are
            nobody's.
    """
    without = sum(not config.path for config in configs)
    if without > 1:
        raise UsageError(f"sources: {without} have no path. One may go without: it reads --input, or the crawl.")
    if inputs and not without:
        raise UsageError("--input: every source of the recipe has a path. Leave --input out, or take one's path out.")
    if crawled and not without:
        configs = (*configs, SourcesConfig.model_validate({"name": "crawl"}))
    files = [list_inputs(config.path or (*inputs, *crawled), left_out, digests) for config in configs]
    repeated = [url for url, count in Counter(file.url for some in files for file in some).items() if count > 1]
    if repeated:
        raise UsageError(f"{min(repeated)}: listed twice among the inputs. Name each file once.")
    taken: set[str] = set()
    sources: dict[str, Source] = {}
    for config, some in zip(configs, files, strict=True):
        labels = common_labels(some, taken)  # of the sources in their order: a new one changes none above it
        taken.update(labels.values())
        letters = re.sub(r"\W+", "_", unicodedata.normalize("NFC", config.name.default))[:KEY_CHARS].strip("_")
        number, key = 1, letters or "source"
        while key in sources:
            number += 1
            key = f"{letters}_{number}"
        sources[key] = Source(key, config, tuple(replace(file, name=labels[file.url]) for file in some))
    return tuple(sources.values())


def pack(source: Source, limits: InputConfig) -> Iterator[Task]:
    """The tasks of a source; a larger file that can be cut is cut into ranges of `task_bytes`."""
    options = {"options": source.digest}
    held: list[File] = []
    for file in sorted(source.files, key=lambda file: (file.label, file.url)):
        is_large = file.bytes > limits.task_bytes
        if not is_large:
            held.append(file)
        if held and (is_large or _fraction(file.label) < file.bytes / (MEAN_PACK * limits.task_bytes)):
            yield from (_task(source.key, files, options) for files in _split(held, limits.task_bytes))
            held = []
        if is_large and can_be_cut(file.url, source.config) and _is_as_named(file.url):
            yield from _ranges(source.key, file, options, max(limits.task_bytes, MIN_SPAN_BYTES))
        elif is_large:
            yield _task(source.key, [file], options)
    if held:
        yield from (_task(source.key, files, options) for files in _split(held, limits.task_bytes))


def _split(files: Sequence[File], limit: int) -> Iterator[Sequence[File]]:
    """Parts of at most `limit` bytes, cut before the file with the least hash and again: the other cuts stay where they
    are when a file comes in, as they would not behind as many as fit."""
    if len(files) == 1 or sum(file.bytes for file in files) <= limit:
        yield files
        return
    at = min(range(1, len(files)), key=lambda at: _fraction(files[at].label))
    yield from _split(files[:at], limit)
    yield from _split(files[at:], limit)


def _is_as_named(url: str) -> bool:
    """Whether the first bytes of a file that can be cut by its name are those of lines of JSON, or of bzip2."""
    with open_stream(url) as file:
        head = file.read(HEAD_BYTES)
    if url.lower().endswith(".bz2"):
        return magic_of(head) == "bzip2"
    return magic_of(head) == "none" and b"\0" not in head and kind_by(url, head) == "jsonl"


def _ranges(key: str, file: File, options: dict[str, Any], step: int) -> Iterator[Task]:
    name = _task(key, [file], {}).name
    for number, start in enumerate(range(0, file.bytes, step)):
        part = range_of(file, start, start + step)
        yield Task(f"{name}-{number:0{SPAN_DIGITS}d}", (part,), {**options, "start": start, "end": start + step})


def _task(key: str, files: Sequence[File], params: dict[str, Any]) -> Task:
    return Task(f"{key}-{_hash(files[0].label)}", tuple(files), params)


def _hash(label: str) -> str:
    return hashlib.sha256(label.encode()).hexdigest()[:HASH_DIGITS]


def _fraction(label: str) -> float:
    """A number from 0 to 1, uniform over labels."""
    return int(_hash(label), 16) / (1 << 4 * HASH_DIGITS)
