"""Which documents a training step saw, and which steps saw a document, by arithmetic in both directions.

The order of samples is computed, not stored (see `data`), so nothing had to be recorded while training: a step is a
range of samples, a sample a window of a corpus, a window tokens of some sequences of a shard; and back. What is read:
the rows of `P.docs.parquet` that are asked for (to find a document, its column of ids or URLs), and the tokens of those
documents up to the window's end, which alone say at which character of the text the window begins and ends.

A character belongs to the token that holds the first byte of its UTF-8, so that the spans of neighbouring windows
neither overlap nor leave a character out, also where a window's edge cuts a character that is spelled in bytes.

A run that went on with another batch, ramp-up, seed or blend is traced as it went (`state.Order`). Documents' text
is printed only where `--text` asks for it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from corpus.engine.errors import SetupError, UsageError
from pretrain.checkpoint import TOKENIZER, local_folder, read_commit, read_saved, read_state
from pretrain.config import RunConfig, corpus_folders
from pretrain.corpora import Corpus, corpora_digest, new_loader, open_corpora
from pretrain.data import Loader, ShardReader
from pretrain.staging import stage_locally
from pretrain.training.state import State
from tokenizer.model import Tokenizer
from tokenizer.shards import TokenShard

ID_BYTES = 16
MAX_CHARACTER_BYTES = 4


@dataclass(frozen=True)
class Sighting:
    """A document, or a part of one, in one sample.

    Tokens and characters are those [start, stop) of the document; its end-of-document token is no character.
    """

    step: int  # of the run, from 1
    sample: int  # of the run, from 0
    corpus: str
    epoch: int  # of the corpus, from 0
    num_tokens: int
    token_start: int
    token_stop: int
    character_start: int
    character_stop: int
    id: str  # 32 hexadecimal digits
    source: str
    url: str | None
    shard: str
    sequence: int  # of the shard
    text: str | None = None  # of the characters, where asked for


@dataclass(frozen=True)
class Part:
    """Tokens [start, stop) of a sequence in one sample."""

    step: int  # as in `Sighting`
    sample: int
    epoch: int
    corpus: str
    shard: TokenShard
    sequence: int
    start: int
    stop: int


class Characters:
    """Counts and prints the characters of tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.pieces = [tokenizer.piece_bytes(id) for id in range(tokenizer.vocab_size)]
        self.begun = np.array([sum(byte & 0xC0 != 0x80 for byte in piece) for piece in self.pieces])  # first bytes

    def span(self, part: Part) -> tuple[int, int]:
        """The characters [start, stop) of the document that begin in a part of it."""
        first = part.shard.bounds(part.sequence)[0]
        begun = self.begun[part.shard.tokens(first, first + part.stop)]
        return int(begun[: part.start].sum()), int(begun.sum())

    def text(self, part: Part) -> str:
        """The characters that begin in a part, each of them whole."""
        first, end = part.shard.bounds(part.sequence)
        stop = min(end, first + part.stop + MAX_CHARACTER_BYTES - 1)  # where the last character may end
        tokens = part.shard.tokens(first + part.start, stop).tolist()
        own = b"".join(self.pieces[id] for id in tokens[: part.stop - part.start])
        more = b"".join(self.pieces[id] for id in tokens[part.stop - part.start :])
        begin = next((place for place, byte in enumerate(own) if byte & 0xC0 != 0x80), len(own))
        rest = next((place for place, byte in enumerate(more) if byte & 0xC0 != 0x80), len(more))
        return (own[begin:] + more[: rest if begin < len(own) else 0]).decode("utf-8", "replace")


class Trace:
    """The samples of a run, of the corpora it is trained on.

    Args:
        config: of the run;
        state: and the orders that its samples were taken in.
        corpora: that it reads.
        tokenizer: the file of its model, or a folder that has it.
    """

    def __init__(self, config: RunConfig, state: State, corpora: Sequence[Corpus], tokenizer: Path) -> None:
        self.config, self.state, self.corpora = config, state, corpora
        self._tokenizer = tokenizer
        self._names = {shard.prefix: corpus.name for corpus in self.corpora for shard in corpus.shards}
        self._loaders: dict[int, tuple[Loader, list[list[TokenShard]]]] = {}

    @classmethod
    def of_checkpoint(cls, checkpoint: Path, places: Mapping[str, Path]) -> Trace:
        """Of the run that has written a checkpoint, up to that.

        Raises:
            WenhaiError: a corpus is missing or damaged, or is not what the run was trained on.
        """
        read_commit(checkpoint)
        saved = read_saved(checkpoint)
        corpora = open_corpora(saved.config.data, places)
        if corpora_digest(corpora) != saved.data:
            names = ", ".join(str(folder) for folder in places.values())
            raise UsageError(f"{names}: is not what {checkpoint} was trained on. Name those shards with --data.")
        return cls(saved.config, read_state(checkpoint), corpora, checkpoint / TOKENIZER)

    @cached_property
    def characters(self) -> Characters:
        """Of the run's tokenizer."""
        return Characters(Tokenizer(self._tokenizer))

    def step(self, step: int, rank: int = 0, num_ranks: int = 1) -> list[Part]:
        """What the batch of a step (from 1) held, or of it one of `num_ranks` data-parallel ranks' part."""
        number = max(index for index, order in enumerate(self.state.orders) if order.step < step)
        first, size = self.state.orders[number].batch_sizes.of_step(step - 1)
        num_local, rest = divmod(size, num_ranks)
        if rest or not 0 <= rank < num_ranks:
            raise UsageError(f"--rank {rank} --ranks {num_ranks}: step {step} has a batch of {size} samples.")
        first += rank * num_local
        return list(self._parts(number, first, num_local))

    def document(self, shard: TokenShard, sequence: int) -> list[Part]:
        """The parts of a document that the run has seen up to its checkpoint, in the order it saw them."""
        limits = [*(order.num_samples for order in self.state.orders[1:]), self.state.num_samples]
        found: list[Part] = []
        for number, (order, limit) in enumerate(zip(self.state.orders, limits, strict=True)):
            loader, shards = self._opened(number)
            ((stream, place),) = (
                (stream, place)
                for stream, of_stream in enumerate(shards)
                for place, other in enumerate(of_stream)
                if other.prefix == shard.prefix
            )
            for sample in loader.samples(stream, place, *shard.bounds(sequence), limit):
                if sample >= order.num_samples:
                    parts = self._parts(number, sample, 1)
                    found += [part for part in parts if (part.shard.prefix, part.sequence) == (shard.prefix, sequence)]
        return found

    def documents(self, column: str, value: bytes | str) -> list[Part]:
        """The parts that the run has seen of all documents with an id or a URL, in the order it saw them.

        Raises:
            UsageError: there is no such document.
        """
        from tokenizer.shards.provenance import find_rows

        found = [
            (shard, sequence)
            for corpus in self.corpora
            for shard in corpus.shards
            for sequence in find_rows(shard, column, value)
        ]
        if not found:
            shown = value.hex() if isinstance(value, bytes) else value
            raise UsageError(f"--{column} {shown}: no document of the run's corpora has it.")
        parts = [part for place in found for part in self.document(*place)]
        return sorted(parts, key=lambda part: part.sample)

    def sightings(self, parts: Sequence[Part], with_text: bool = False) -> list[Sighting]:
        """Who the parts are, and which characters of them.

        Raises:
            ShardError: a shard's `P.docs.parquet` is missing, damaged or of another shard.
        """
        from tokenizer.shards.provenance import read_rows

        wanted: dict[Path, set[int]] = defaultdict(set)
        for part in parts:
            wanted[part.shard.prefix].add(part.sequence)
        shards = {part.shard.prefix: part.shard for part in parts}
        rows = {prefix: read_rows(shards[prefix], sequences) for prefix, sequences in sorted(wanted.items())}
        return [self._sighting(part, rows[part.shard.prefix][part.sequence], with_text) for part in parts]

    def _sighting(self, part: Part, row: dict[str, Any], with_text: bool) -> Sighting:
        first, stop = self.characters.span(part)
        return Sighting(
            step=part.step,
            sample=part.sample,
            corpus=part.corpus,
            epoch=part.epoch,
            num_tokens=part.stop - part.start,
            token_start=part.start,
            token_stop=part.stop,
            character_start=first,
            character_stop=stop,
            shard=part.shard.prefix.name,
            sequence=part.sequence,
            text=self.characters.text(part) if with_text else None,
            **row,
        )

    def _opened(self, number: int) -> tuple[Loader, list[list[TokenShard]]]:
        """The loader of an order of the run, which reads nothing, and the shards of its streams."""
        if number not in self._loaders:
            loader = new_loader(self.corpora, self.state.orders[number], self.config)
            readers = [
                [shard for shard in stream.shards if isinstance(shard, ShardReader)] for stream in loader.streams
            ]
            self._loaders[number] = loader, [[reader.shard for reader in of_stream] for of_stream in readers]
        return self._loaders[number]

    def _parts(self, number: int, first: int, count: int) -> Iterator[Part]:
        """The tokens of the samples [first, first + count) of an order by sequence: T inputs and the last target
        each."""
        loader, shards = self._opened(number)
        batch_sizes = self.state.orders[number].batch_sizes
        indices = np.arange(first, first + count) if loader.blend is None else loader.blend.origins(first, count)[1]
        origins = loader.origins(first, count)
        for sample, (index, (stream, spans)) in enumerate(zip(indices.tolist(), origins, strict=True), start=first):
            step, epoch = batch_sizes.step_of(sample) + 1, index // loader.streams[stream].num_samples
            for span in spans:
                shard = shards[stream][span.shard]
                for sequence, start, stop in sequences_between(shard, span.start, span.stop):
                    yield Part(step, sample, epoch, self._names[shard.prefix], shard, sequence, start, stop)


def sequences_between(shard: TokenShard, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Each sequence with a token in [start, stop) of a shard, and which of its tokens: (sequence, start, stop)."""
    sequence = shard.sequence_of(start)
    while start < stop:
        first, end = shard.bounds(sequence)
        yield sequence, start - first, min(end, stop) - first
        sequence, start = sequence + 1, end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain trace`."""
    parser.add_argument(
        "--checkpoint", required=True, help="a step-... folder or URL of the run, of this step or later"
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="FOLDER",
        help="the folder it trained on; NAME=FOLDER for a corpus that lies elsewhere than the configuration says",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, metavar="N", help="list what this step saw, from 1")
    what.add_argument("--url", help="list the steps up to the checkpoint that saw the documents of this URL")
    what.add_argument("--id", metavar="HEX", help="list the steps up to the checkpoint that saw this document")
    parser.add_argument("--rank", type=int, metavar="R", help="with --step: only what one data-parallel rank saw")
    parser.add_argument("--ranks", type=int, metavar="W", help="with --rank: how many data-parallel ranks there were")
    parser.add_argument("--text", action="store_true", help="print the text of the characters too")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of tab-separated columns")


def main(args: argparse.Namespace) -> None:
    """Print the documents of a step, or the steps of a document.

    Raises:
        SetupError: pyarrow is missing, which the packages for training do not bring.
    """
    if find_spec("pyarrow") is None:
        raise SetupError(
            "trace reads the tables of documents (.docs.parquet) and needs pyarrow. Run: pip install pyarrow"
        )
    if (args.rank is None) != (args.ranks is None) or (args.rank is not None and args.step is None):
        raise UsageError("--rank R and --ranks W go together, with --step: the part of a batch that rank R of W had.")
    checkpoint = local_folder(args.checkpoint)
    places = _places(checkpoint, args.data)
    with stage_locally(read_saved(checkpoint).config.data, places) as folders:
        _print(Trace.of_checkpoint(checkpoint, folders), args)


def _print(trace: Trace, args: argparse.Namespace) -> None:
    if args.step is not None:
        num_steps = trace.config.training.num_steps
        if not 1 <= args.step <= num_steps:
            raise UsageError(f"--step {args.step}: the run has the steps 1 to {num_steps}.")
        parts = trace.step(args.step, args.rank or 0, args.ranks or 1)
    elif args.url is not None:
        parts = trace.documents("url", args.url)
    else:
        parts = trace.documents("id", _document_id(args.id))
    names = [field.name for field in fields(Sighting) if args.text or field.name != "text"]
    if not args.json:
        print(*names, sep="\t")
    for sighting in trace.sightings(parts, args.text):
        values = {name: getattr(sighting, name) for name in names}
        print(printable_json(values) if args.json else "\t".join(map(printable, values.values())))


def printable(value: Any) -> str:
    """A value as a tab-separated field: what would break the table or steer a terminal is percent-encoded."""
    text = "" if value is None else str(value)
    return "".join(mark if mark.isprintable() else "".join(f"%{b:02X}" for b in mark.encode()) for mark in text)


def printable_json(values: dict[str, Any]) -> str:
    """A JSON object in a line, in which only what steers no terminal stands for itself."""
    line = json.dumps(values, ensure_ascii=False)
    return "".join(mark if mark.isprintable() else json.dumps(mark)[1:-1] for mark in line)


def _places(checkpoint: Path, data: Sequence[str]) -> dict[str, str]:
    """Where the corpora of a run lie: what its configuration says, or `--data` in its place."""
    read_commit(checkpoint)
    config = read_saved(checkpoint).config.data
    if not config.corpora:
        if len(data) > 1:
            raise UsageError(f"--data {data[1]}: {checkpoint} was trained on one corpus, not on several.")
        return corpus_folders(config, data[0] if data else None)
    places = corpus_folders(config, None)
    for word in data:
        name, _, folder = word.partition("=")
        if name not in places or not folder:
            raise UsageError(f"--data {word}: give NAME=FOLDER, where NAME is one of {', '.join(places)}.")
        places[name] = folder
    return places


def _document_id(text: str) -> bytes:
    """The 16 bytes of an id.

    Raises:
        UsageError: it is none.
    """
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != ID_BYTES:
        raise UsageError(f"--id {text}: an id is {2 * ID_BYTES} hexadecimal digits.")
    return value
