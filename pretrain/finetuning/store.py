"""A folder of examples, written: token shards of two splits, which tokens count, where each example came from.

    examples/
        data/00000-00-train.bin .idx .meta.json .counted .docs.parquet      the last where pyarrow is installed
        data/00000-00-validation...
        model/tokenizer.model
        EXAMPLES.json
        MANIFEST.json         every file's size and SHA-256: written last, and what makes the folder complete

It is read like any folder of token shards, by `train`, `trace` and `tokenizer verify`. The same examples give the same
bytes, so that a start which died half way is simply repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from corpus.engine import durable, manifest
from corpus.engine.errors import UsageError
from pretrain.chat.templates import Part, Template, parts
from pretrain.data.examples import COUNTED, RECORD, BoolArray, Record, SplitRecord, read_record
from pretrain.evaluation.texts import blocks
from pretrain.finetuning.sources import Example, Source, Survey, number_of
from tokenizer.model import Ids, Tokenizer
from tokenizer.shards.writer import create_shard

ENCODED_TOGETHER = 256  # examples, or fewer that
CHARACTERS_TOGETHER = 1 << 20  # have so many characters: one line may have 64 MB

TooLong = Literal["error", "drop", "cut"]
CONFIG, ORIGIN, EXAMPLES = "config.toml", "finetuning.json", "examples"  # below the folder of a run, see `start`
SHARD = "00000-00-{}"
DOCS = ".docs.parquet"
GROUP_ROWS = 1 << 16


class Encoded(NamedTuple):
    """One example."""

    example: Example
    ids: Ids  # [n], without its end-of-document token
    is_counted: BoolArray  # [n + 1], that token included
    num_characters: int
    num_counted_characters: int  # of the answers


@dataclass
class Fit:
    """What becomes of examples that are longer than a row, and how many there were.

    Args:
        num_tokens: A row's, of which an example's end-of-document token is one.
        too_long: "cut" takes tokens from the beginning of its first prompt, of which one stays; an example whose rest
            is still too long is dropped.
    """

    num_tokens: int
    too_long: TooLong
    longest: int = 0  # tokens
    num_longer: int = 0
    num_cut: int = 0

    @property
    def num_dropped(self) -> int:
        return self.num_longer - self.num_cut

    def __call__(self, encoded: Encoded) -> Encoded | None:
        """The example as it fits, or None."""
        self.longest = max(self.longest, len(encoded.is_counted))
        excess = len(encoded.is_counted) - self.num_tokens
        if excess <= 0:
            return encoded
        self.num_longer += 1
        if self.too_long != "cut" or excess >= int(encoded.is_counted.argmax()):
            return None
        self.num_cut += 1
        return encoded._replace(ids=encoded.ids[excess:], is_counted=encoded.is_counted[excess:])


def encode(examples: Iterable[Example], template: Template, tokenizer: Tokenizer) -> Iterator[Encoded]:
    """Examples with their tokens, some at a time: each part of a text is encoded for itself."""

    def size(spelled: tuple[Example, list[Part]]) -> int:
        characters = sum(len(part.text) for part in spelled[1])
        return max(characters, CHARACTERS_TOGETHER // ENCODED_TOGETHER)

    found = ((example, parts(template, example.messages)) for example in examples)
    for block in blocks(found, size, CHARACTERS_TOGETHER):
        ids = iter(tokenizer.encode_batch([part.text for _, spelled in block for part in spelled]))
        for example, spelled in block:
            own = list(islice(ids, len(spelled)))
            is_counted = np.repeat([part.is_answer for part in spelled], [len(each) for each in own])
            sizes = [len(part.text) for part in spelled]
            num_counted = sum(size for size, part in zip(sizes, spelled, strict=True) if part.is_answer)
            yield Encoded(example, np.concatenate(own), np.append(is_counted, True), sum(sizes), num_counted)


@dataclass(frozen=True)
class Plan:
    """What a folder of examples is made of."""

    source: Source
    found: Survey  # of the source
    held_out: tuple[Source, Survey] | None  # None: a share of `source`, as its survey says
    template: Template
    tokenizer: Tokenizer
    fit: Fit

    @property
    def digest(self) -> str:
        """Equal for folders of equal bytes."""
        held_out = self.held_out[1].digest if self.held_out else self.found.last_held_out
        parts = [self.found.digest, held_out, self.template.model_dump(exclude={"description"}), self.tokenizer.sha256]
        return durable.digest([*parts, self.fit.num_tokens, self.fit.too_long])

    def examples(self, split: str) -> Iterator[Example]:
        """Those of one split."""
        if self.held_out is not None:
            yield from self.source if split == "train" else self.held_out[0]
            return
        for example in self.source:
            if (number_of(example.id) <= self.found.last_held_out) == (split == "validation"):
                yield example


def write_examples(folder: Path, plan: Plan) -> Record:
    """Make a folder of examples, or find it made: its record.

    Raises:
        UsageError: examples are longer than a row and not to be cut or dropped, or a split has none; the folder is of
            others.
    """
    if manifest.read(str(folder)) is not None:
        record = read_record(folder)
        if record is None or record.made_of != plan.digest:
            raise UsageError(
                f"{folder}: holds other examples, or made in another way. Give the same files and options, or another "
                "--out."
            )
        return record
    splits = {split: _write_split(folder / "data", split, plan) for split in ("train", "validation")}
    _check_lengths(plan.fit, sum(split.examples for split in splits.values()))
    for name, split in splits.items():
        if not split.examples:
            why = f"{plan.fit.num_dropped:,} were too long" if plan.fit.num_dropped else "there is none"
            raise UsageError(f"no example is left for {name}: {why}. Give more with --examples or --held-out.")
    durable.write_bytes(folder / "model" / "tokenizer.model", plan.tokenizer.path.read_bytes())
    surveys = [plan.found, *([plan.held_out[1]] if plan.held_out else [])]
    skipped = sum(each.num_skipped for each in surveys)
    record = Record(
        made_of=plan.digest,
        counted={
            path.name.removesuffix(COUNTED): durable.sha256_file(path) for path in (folder / "data").glob(f"*{COUNTED}")
        },
        splits=splits,
        lines=sum(each.num_examples for each in surveys) + skipped,
        skipped=skipped,
        dropped=plan.fit.num_dropped,
        cut=plan.fit.num_cut,
    )
    durable.write_json(folder / RECORD, record.model_dump(mode="json"))
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": durable.sha256_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    manifest.commit_files(str(folder), files, "examples")
    return record


def _check_lengths(fit: Fit, num_left: int) -> None:
    if fit.too_long == "error" and fit.num_longer:
        raise UsageError(
            f"{fit.num_longer:,} of {num_left + fit.num_longer:,} examples are longer than the window of "
            f"{fit.num_tokens:,} tokens; the longest has {fit.longest:,}. Leave them out with --too-long drop, cut "
            "the beginning of their prompts with --too-long cut, or choose a longer model.sequence_length."
        )


def _write_split(folder: Path, split: str, plan: Plan) -> SplitRecord:
    prefix = folder / SHARD.format(split)
    tokenizer, counted, rows, num_characters = plan.tokenizer, bytearray(), _Rows(), 0  # counted: a byte a token
    identity = {"vocab_size": tokenizer.vocab_size, "eod": tokenizer.eod, "tokenizer_sha256": tokenizer.sha256}
    with create_shard(prefix, split=split, **identity) as writer:
        for encoded in map(plan.fit, encode(plan.examples(split), plan.template, tokenizer)):
            if encoded is not None:
                writer.add(encoded.ids, f"{encoded.example.source}:{encoded.example.line}", encoded.num_characters)
                counted += encoded.is_counted.tobytes()
                rows.add(encoded)
                num_characters += encoded.num_counted_characters
    durable.write_bytes(
        prefix.with_name(prefix.name + COUNTED), np.packbits(np.frombuffer(counted, np.bool_)).tobytes()
    )
    rows.write(prefix.with_name(prefix.name + DOCS))
    return SplitRecord(
        examples=rows.num_rows,
        tokens=len(counted),
        counted_tokens=counted.count(1),
        counted_characters=num_characters,
    )


class _Rows:
    """The table of a shard's documents: `url` is file:line, by which `trace` finds an example."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._groups: list[dict[str, Any]] = []
        self._columns: dict[str, list[Any]] = {}

    def add(self, encoded: Encoded) -> None:
        example = encoded.example
        row = {
            "sequence": self.num_rows,
            "id": example.id,
            "url": f"{example.source}:{example.line}",
            "source": example.source,
            "num_tokens": len(encoded.is_counted),
        }
        for name, value in row.items():
            self._columns.setdefault(name, []).append(value)
        self.num_rows += 1
        if self.num_rows % GROUP_ROWS == 0:
            self._end_group()

    def write(self, path: Path) -> None:
        """Write the table, where that is possible: training needs none."""
        if find_spec("pyarrow") is None:
            path.unlink(missing_ok=True)
            return
        from tokenizer.shards.provenance import write_docs

        self._end_group()
        with durable.commit(path) as temporary:
            write_docs(temporary, self._groups)

    def _end_group(self) -> None:
        if self._columns and find_spec("pyarrow") is not None:
            import pyarrow as pa

            self._groups.append({name: pa.array(values) for name, values in self._columns.items()})
        self._columns = {}
