"""Copies of a mixture become sequences: as many as it says, each in a place of its own, validation once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import fetch
from tests.tokenizer.test_stages import RECIPE, Texts, digests, identity, shards_of
from tests.tokenizer.texts import documents
from tokenizer.build import stages
from tokenizer.documents import document_keys
from tokenizer.encode import Copies, seeded_order
from tokenizer.model import Tokenizer
from tokenizer.pretrained import pretrained_tokenizer
from tokenizer.shards import SPLITS, open_split
from tokenizer.shards.provenance import read_rows, verify_docs

DOCUMENTS = 90
TEXTS = documents(DOCUMENTS)


@dataclass(frozen=True)
class Given(Stage):
    """A mixture stage of given copies, in the shape of the one that the corpus builds."""

    copies: tuple[tuple[bytes, int], ...]
    shift: int = 0  # rows left out at the beginning: a mixture of another text

    name: ClassVar[str] = "mixture"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("text",)

    def config(self) -> dict[str, Any]:
        return {"copies": [[id.hex(), copies] for id, copies in self.copies], "shift": self.shift}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(shard_name(file), (file,)) for file in upstream["text"].files()]

    def run(self, task: Task, out: Output) -> Counts:
        ids = pq.read_table(fetch(task.inputs[0].url), columns=["id"])["id"].to_pylist()[self.shift :]
        copies = pa.array([dict(self.copies)[id] for id in ids], pa.uint8())
        with out.create(f"copies/{task.name}.parquet", rows=len(ids)) as path:
            pq.write_table(pa.table({"id": pa.array(ids, pa.binary(16)), "copies": copies}), path)
        return Counts()


def build(
    out: Path, copies: list[int], model: Path | None = None, shards: int = 3, workers: int = 0, shift: int = 0
) -> dict[str, Folder]:
    """With a vocabulary of its own, or the one of a model file."""
    wanted = tuple((identity(text), copy) for text, copy in zip(TEXTS, copies, strict=True))
    run_stages([Texts(shards_of(TEXTS, shards)), Given(wanted, shift)], str(out), workers=0)
    given = pretrained_tokenizer(str(model)) if model else None
    return run_stages(stages(RECIPE, mixed=True, given=given), str(out), workers=workers)


def written(out: Path, split: str) -> list[bytes]:
    """The ids of a split's sequences, by provenance that is checked against the tokens."""
    tokenizer, found = Tokenizer(out), []
    texts = {identity(text): text for text in TEXTS}
    for shard in open_split(out, split):
        shard.verify()
        verify_docs(shard)
        rows = pq.read_table(f"{shard.prefix}.docs.parquet").to_pylist()
        for row in rows:
            assert tokenizer.decode(shard.sequence(row["sequence"])) == texts[row["id"]]
        traced = read_rows(shard, set(range(shard.num_sequences)))
        assert [traced[number]["id"] for number in range(len(rows))] == [row["id"].hex() for row in rows]
        found += [row["id"] for row in rows]
    return found


COPIES = [n % 4 for n in range(DOCUMENTS)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixed")
    build(out, COPIES)
    return out


@pytest.fixture(scope="module")
def unmixed(tmp_path_factory: pytest.TempPathFactory, model_file: Path) -> Path:
    out = tmp_path_factory.mktemp("unmixed")
    run_stages([Texts(shards_of(TEXTS, 3))], str(out), workers=0)
    run_stages(stages(RECIPE, given=pretrained_tokenizer(str(model_file))), str(out), workers=0)
    return out


def test_every_copy_is_a_sequence_and_validation_has_each_document_once(mixed: Path, unmixed: Path) -> None:
    copies = {identity(text): copy for text, copy in zip(TEXTS, COPIES, strict=True)}
    before, after = ({split: Counter(written(out, split)) for split in SPLITS} for out in (unmixed, mixed))
    assert after["train"] == {id: copies[id] for id in before["train"] if copies[id]}
    assert after["validation"] == {id: 1 for id in before["validation"] if copies[id]}
    assert len(after["validation"]) > 3


def test_counts_are_conserved(mixed: Path) -> None:
    counts = Folder.open(str(next(mixed.glob("tokens-*")))).counts
    left_out = COPIES.count(0)
    assert (counts.documents_in, counts.documents_out) == (DOCUMENTS, DOCUMENTS - left_out)
    assert counts.dropped == {"mixture.left_out": left_out}
    assert counts.bytes_in == sum(len(text.encode()) for text in TEXTS)
    sizes = {identity(text): len(text.encode()) for text in TEXTS}
    sequences = {split: written(mixed, split) for split in SPLITS}
    assert counts.extra["sequence_bytes"] == sum(sizes[id] for some in sequences.values() for id in some)
    for split, some in sequences.items():
        assert counts.extra[f"sequences_{split}"] == len(some)
        assert counts.extra[f"documents_{split}"] == len(set(some))
        assert counts.extra[f"tokens_{split}"] == sum(shard.num_tokens for shard in open_split(mixed, split))
    assert counts.documents_out == sum(counts.extra[f"documents_{split}"] for split in SPLITS)


def test_once_each_is_byte_for_byte_what_there_is_without_a_mixture(
    unmixed: Path, model_file: Path, tmp_path: Path
) -> None:
    build(tmp_path, [1] * DOCUMENTS, model_file)

    def shards(out: Path) -> dict[str, str]:
        return {name.split("/", 1)[1]: digest for name, digest in digests(out).items() if "/data/" in name}

    assert shards(tmp_path) == shards(unmixed)


def test_any_number_of_workers_gives_the_same_bytes(mixed: Path, tmp_path: Path) -> None:
    build(tmp_path, COPIES, workers=2)
    assert digests(tmp_path) == digests(mixed)


def test_other_shards_take_as_many_copies(mixed: Path, model_file: Path, tmp_path: Path) -> None:
    build(tmp_path, COPIES, model_file, shards=5)
    for split in SPLITS:
        assert sorted(written(tmp_path, split)) == sorted(written(mixed, split))


def test_another_mixture_keeps_the_vocabulary(mixed: Path, tmp_path: Path) -> None:
    folders = build(tmp_path, COPIES[::-1])
    assert Tokenizer(tmp_path).sha256 == Tokenizer(mixed).sha256
    assert folders["tokens"].digest != Folder.open(str(next(mixed.glob("tokens-*")))).digest


def test_a_mixture_of_another_text_is_refused(model_file: Path, tmp_path: Path) -> None:
    with pytest.raises(WenhaiError, match="is the mixture of another text shard"):
        build(tmp_path, COPIES, model_file, shift=1)


def test_copies_of_as_many_other_documents_are_refused(tmp_path: Path) -> None:
    ids = [identity(text) for text in TEXTS[:3]]
    table = pa.table({"id": pa.array(ids, pa.binary(16)), "copies": pa.array([1, 0, 3], pa.uint8())})
    pq.write_table(table, tmp_path / "00000.parquet")
    [file] = list_inputs([str(tmp_path / "00000.parquet")])
    copies = Copies(file)
    assert [*copies.take(ids[:2]), *copies.take(ids[2:])] == [1, 0, 3]
    copies.end()
    with pytest.raises(WenhaiError, match="of another text shard"):
        Copies(file).take(ids[::-1])


def test_a_mixture_with_rows_behind_the_text_is_refused(model_file: Path, tmp_path: Path) -> None:
    folders = build(tmp_path, COPIES, model_file)
    for file in folders["mixture"].files("copies"):
        table = pq.read_table(file.url)
        pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), file.url)
    with pytest.raises(WenhaiError, match="is the mixture of another text shard"):
        again = RECIPE.model_copy(update={"seed": 3})
        run_stages(stages(again, mixed=True, given=pretrained_tokenizer(str(model_file))), str(tmp_path), workers=0)


@given(copies=st.lists(st.integers(0, 5), max_size=40), seed=st.integers(0, 3))
def test_each_copy_has_a_place_of_its_own(copies: list[int], seed: int) -> None:
    ids = [identity(str(number)) for number in range(len(copies))]
    order = seeded_order(ids, seed, np.array(copies, np.int64)).tolist()
    assert Counter(order) == {row: count for row, count in enumerate(copies) if count}
    once = [row for row in seeded_order(ids, seed).tolist() if copies[row]]
    keys = {row: int(document_keys([ids[row]], "order", seed)[0]) for row in once}
    assert sorted(once, key=lambda row: keys[row]) == once
    without = seeded_order(ids, seed, np.minimum(copies, 1).astype(np.int64)).tolist()
    assert without == once


def test_copies_stand_apart() -> None:
    """Three copies of each of 200 documents: few stand side by side, as many as chance puts there."""
    order = seeded_order([identity(str(number)) for number in range(200)], 0, np.full(200, 3))
    assert (np.diff(order) == 0).mean() < 0.02
