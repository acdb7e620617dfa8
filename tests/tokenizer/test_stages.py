"""Text shards to token shards: conservation, the same bytes for any workers, and the split that nothing crosses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from corpus.engine.run import current, run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File
from tests.tokenizer.texts import documents
from tokenizer.build import stages
from tokenizer.config import TokenizerConfig
from tokenizer.documents import document_keys
from tokenizer.encode import TokensStage
from tokenizer.model import Tokenizer
from tokenizer.sample import SampleStage, read_sample
from tokenizer.shards import SPLITS, TokenShard, open_split
from tokenizer.sources import MAX_CHARACTERS, SharesStage, SourcesStage
from tokenizer.train import TokenizerStage, train

RECIPE = TokenizerConfig(vocab_size=600, validation_ratio=0.2, num_threads=1)
DOCUMENTS = 120


@dataclass(frozen=True)
class Texts(Stage):
    """A text stage of given documents: the shape of the one that the corpus builds."""

    shards: tuple[tuple[str, ...], ...]

    name: ClassVar[str] = "text"
    version: ClassVar[int] = 1

    def config(self) -> dict[str, Any]:
        return {"shards": [list(shard) for shard in self.shards]}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(f"{number:05d}-00", params={"shard": number}) for number in range(len(self.shards))]

    def run(self, task: Task, out: Output) -> Counts:
        texts = self.shards[task.params["shard"]]
        columns = {
            "id": pa.array([identity(text) for text in texts], pa.binary(16)),
            "source": ["test"] * len(texts),
            "url": [f"https://example.org/{identity(text).hex()}" for text in texts],
            "text": pa.array(texts, pa.large_string()),
        }
        with out.create(f"data/{task.name}.parquet", rows=len(texts)) as path:
            pq.write_table(pa.table(columns), path)
        size = sum(len(text.encode()) for text in texts)
        return Counts(len(texts), len(texts), size, size)


def identity(text: str) -> bytes:
    return xxhash.xxh3_128_digest(b"id" + text.encode())


def shards_of(texts: Sequence[str], count: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(texts[number::count]) for number in range(count))


def build(
    out: Path, shards: tuple[tuple[str, ...], ...], recipe: TokenizerConfig = RECIPE, workers: int = 0
) -> dict[str, Folder]:
    run_stages([Texts(shards)], str(out), workers=0)
    return run_stages(stages(recipe), str(out), workers=workers)


def digests(out: Path) -> dict[str, str]:
    """Every committed file but the records of time."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in (".lock", "timings.json")
    }


def sequences(out: Path, split: str) -> dict[str, list[int]]:
    """url -> ids of a split, by way of the provenance table."""
    found = {}
    for shard in open_split(out, split):
        rows = pq.read_table(f"{shard.prefix}.docs.parquet").to_pylist()
        assert [row["sequence"] for row in rows] == list(range(shard.num_sequences))
        for row in rows:
            ids = shard.sequence(row["sequence"]).tolist()
            assert row["num_tokens"] == len(ids)
            assert row["url"].endswith(row["id"].hex())
            found[row["url"]] = ids
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    build(out, shards_of(documents(DOCUMENTS), 3))
    return out


def test_every_document_arrives_once_and_comes_back(built: Path) -> None:
    tokenizer = Tokenizer(built)
    texts = {f"https://example.org/{identity(text).hex()}": text for text in documents(DOCUMENTS)}
    train, validation = sequences(built, "train"), sequences(built, "validation")
    assert train.keys().isdisjoint(validation.keys())
    assert train.keys() | validation.keys() == texts.keys()
    for url, ids in (train | validation).items():
        assert ids[-1] == tokenizer.eod
        assert tokenizer.eod not in ids[:-1]
        assert tokenizer.decode(ids) == texts[url]
    assert 0.08 * DOCUMENTS < len(validation) < 0.35 * DOCUMENTS


def test_counts_balance(built: Path) -> None:
    counts = current(str(built), "tokens").counts
    text = current(str(built), "text").counts
    assert (counts.documents_in, counts.documents_out) == (DOCUMENTS, DOCUMENTS)
    assert counts.bytes_in == counts.bytes_out == text.bytes_out
    shards = {split: open_split(built, split) for split in SPLITS}
    for split in SPLITS:
        assert counts.extra[f"tokens_{split}"] == sum(shard.num_tokens for shard in shards[split])
        assert counts.extra[f"documents_{split}"] == sum(shard.num_sequences for shard in shards[split])
    characters = sum(shard.meta.num_characters for split in SPLITS for shard in shards[split])
    assert characters == counts.extra["characters"] == sum(map(len, documents(DOCUMENTS)))


def test_any_number_of_workers_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    build(tmp_path, shards_of(documents(DOCUMENTS), 3), workers=2)
    assert digests(tmp_path) == digests(built)


def test_other_shards_in_other_order_give_the_same_vocabulary_and_split(built: Path, tmp_path: Path) -> None:
    build(tmp_path, shards_of(documents(DOCUMENTS)[::-1], 5))
    assert Tokenizer(tmp_path).sha256 == Tokenizer(built).sha256
    for split in SPLITS:
        assert sequences(tmp_path, split) == sequences(built, split)


def test_a_partial_sample_depends_on_documents_and_not_on_shards(tmp_path: Path) -> None:
    texts = documents(DOCUMENTS)
    recipe = RECIPE.model_copy(update={"sample_bytes": sum(len(text.encode()) for text in texts) // 3})
    models = []
    for number, (shards, seed) in enumerate(
        ((shards_of(texts, 2), 0), (shards_of(texts[::-1], 5), 0), (shards_of(texts, 2), 1))
    ):
        training = stages(recipe.model_copy(update={"seed": seed}))[:-1]
        folders = run_stages([Texts(shards), *training], str(tmp_path / str(number)), workers=0)
        counts = folders["tokenizer"].counts
        assert 0.5 * recipe.sample_bytes < counts.bytes_out <= recipe.sample_bytes
        assert folders["sample"].counts.dropped["sample.not_chosen"] > 0
        models.append(Path(folders["tokenizer"].files("model")[0].url).read_bytes())
    assert models[0] == models[1] != models[2]


def test_the_report_says_what_was_sampled_and_what_was_rejected(tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(
        update={"vocab_size": 560, "reject": "none", "reject_pieces": ("不亦",), "traditional_ratio": 0.5}
    )
    folders = build(tmp_path, shards_of(documents(DOCUMENTS), 2), recipe)
    page, file = folders["tokenizer"].files("report")
    report = json.loads(Path(file.url).read_text())
    assert report["sample_by_source"]["test"]["documents"] == DOCUMENTS
    assert list(report["sources"]) == ["test"]
    assert 0 < report["sample_traditional_ratio"] < 0.2
    assert report["vocab_size"] == report["vocab_size_asked"] == 560
    assert set(report["rejected_pieces"].values()) == {"recipe: 不亦"}
    assert "不亦" in Path(page.url).read_text(encoding="utf-8")
    tokenizer = Tokenizer(tmp_path)
    assert not any("不亦" in tokenizer.piece(id) for id in range(tokenizer.vocab_size))


def test_the_order_is_seeded_and_is_not_the_files(built: Path, tmp_path: Path) -> None:
    def order(out: Path) -> list[str]:
        return [row for shard in open_split(out, "train") for row in _ids(shard)]

    build(tmp_path, shards_of(documents(DOCUMENTS), 3), RECIPE.model_copy(update={"seed": 5}))
    first = _ids(open_split(built, "train")[0])
    in_file = [identity(text).hex() for text in shards_of(documents(DOCUMENTS), 3)[0]]
    assert first != [id for id in in_file if id in set(first)]
    keys = document_keys([bytes.fromhex(id) for id in first], "order", 0).tolist()
    assert keys == sorted(keys)
    assert order(tmp_path) != order(built)


def _ids(shard: TokenShard) -> list[str]:
    return [id.hex() for id in pq.read_table(f"{shard.prefix}.docs.parquet")["id"].to_pylist()]


def test_a_larger_corpus_keeps_every_document_on_its_side(built: Path, tmp_path: Path) -> None:
    build(tmp_path, shards_of(documents(2 * DOCUMENTS), 4))
    for split in SPLITS:
        assert set(sequences(built, split)) <= set(sequences(tmp_path, split))


def test_only_what_depends_on_a_key_is_done_again(built: Path) -> None:
    def names(recipe: TokenizerConfig) -> dict[str, str]:
        return {name: folder.url for name, folder in run_stages(stages(recipe), str(built), workers=0).items()}

    before = names(RECIPE)
    other_split = names(RECIPE.model_copy(update={"validation_ratio": 0.3}))
    assert other_split["tokens"] != before["tokens"]
    assert (other_split["sample"], other_split["tokenizer"]) == (before["sample"], before["tokenizer"])
    other_size = names(RECIPE.model_copy(update={"vocab_size": 500}))
    assert other_size["sample"] == before["sample"]
    assert other_size["tokenizer"] != before["tokenizer"]
    assert names(RECIPE) == before


def test_a_split_without_documents_has_no_files(tmp_path: Path) -> None:
    build(tmp_path, shards_of(documents(40), 2), RECIPE.model_copy(update={"validation_ratio": 0.0}))
    assert len(open_split(tmp_path, "train")) == 2 and open_split(tmp_path, "validation") == []


def test_empty_documents_and_empty_shards(tmp_path: Path) -> None:
    folders = build(tmp_path, (("", *documents(30)), ()))
    assert folders["tokens"].counts.documents_out == 31
    ids = (sequences(tmp_path, "train") | sequences(tmp_path, "validation"))[
        f"https://example.org/{identity('').hex()}"
    ]
    assert ids == [Tokenizer(tmp_path).eod]


@pytest.mark.parametrize("shards", [(), ((),), (("",),)])
def test_a_corpus_without_text_is_refused_in_words(tmp_path: Path, shards: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(WenhaiError, match="no text to train"):
        build(tmp_path, shards)


def test_parquet_files_from_elsewhere(tmp_path: Path) -> None:
    texts = documents(60)
    for folder, part in (("x", texts[:30]), ("y", texts[30:])):
        (tmp_path / folder).mkdir()
        raw = pa.array([*(text.encode() for text in part), b"\xff\xfe"], pa.binary())
        text = pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2])
        pq.write_table(pa.table({"text": text}), tmp_path / folder / "part.0001.parquet")
    out = tmp_path / "out"
    folders = run_stages(stages(RECIPE, [str(tmp_path / "x"), str(tmp_path / "y")]), str(out), workers=0)
    for name in ("sample", "tokens"):
        assert folders[name].counts.errors == {"invalid_utf8": 2}
        assert (folders[name].counts.documents_in, folders[name].counts.documents_out) == (62, 60)
    tokenizer, found = Tokenizer(out), []
    for split in SPLITS:
        for shard in open_split(out, split):
            rows = pq.read_table(f"{shard.prefix}.docs.parquet").to_pylist()
            assert {(row["url"], row["source"]) for row in rows} == {(None, "part.0001.parquet")}
            found += [tokenizer.decode(shard.sequence(index)) for index in range(shard.num_sequences)]
    assert sorted(found) == sorted(texts)
    names = {Path(file.url).name.split("-")[0] for file in folders["tokens"].files()}
    assert names == {"00000", "00001"}  # equal file names are told apart


def test_another_builds_text_is_read_through_its_manifest(built: Path, tmp_path: Path) -> None:
    run_stages(stages(RECIPE, [str(built)]), str(tmp_path), workers=0)
    for split in SPLITS:
        assert sequences(tmp_path, split) == sequences(built, split)


def test_token_bytes_are_golden(tmp_path: Path) -> None:
    """Raise the version of the stage that changed when this fails: bytes of the same version never differ."""
    recipe = RECIPE.model_copy(update={"vocab_size": 500, "reject": "none"})
    build(tmp_path, shards_of(documents(30), 1), recipe)
    assert (SourcesStage.version, SharesStage.version) == (1, 1)
    assert (SampleStage.version, TokenizerStage.version, TokensStage.version) == (3, 4, 1)
    (shard,) = open_split(tmp_path, "train")
    assert durable.sha256_file(shard.bin_path)[:16] == "2482ffdc42932031"
    assert durable.sha256_file(shard.idx_path)[:16] == "435f8e1402bad80c"
    without = recipe.model_copy(update={"reject_pieces": ("学而",)})
    assert hashlib.sha256(train(documents(30), without)).hexdigest()[:16] == "f8b32275b2b80d8c"


def sampled(out: Path, *shards: tuple[str, ...]) -> list[File]:
    return run_stages([Texts(shards), *stages(RECIPE)[:3]], str(out), workers=0)["sample"].files()


def test_a_damaged_sample_is_named(tmp_path: Path) -> None:
    (file,) = sampled(tmp_path, tuple(documents(30)))
    data = bytearray(Path(file.url).read_bytes())
    data[100] ^= 1
    Path(file.url).write_bytes(data)
    with pytest.raises(WenhaiError, match=r"00000-00\.parquet: damaged"):
        read_sample([file])


def test_no_book_is_the_sample(tmp_path: Path) -> None:
    texts = read_sample(sampled(tmp_path, ("学而😀" * 50_000, *documents(30))))["text"].to_pylist()
    assert sorted(map(len, texts))[-1] == MAX_CHARACTERS
    assert ("学而😀" * 50_000)[:MAX_CHARACTERS] in texts


def test_real_texts_come_back(test_data: Path, tmp_path: Path) -> None:
    """The first documents of each file of real prose, in both kinds of model."""
    texts = []
    for path in sorted((test_data / "text").glob("*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line, _ in zip(lines, range(12), strict=False)]
    assert len(texts) > 40
    for kind in ("bpe", "unigram"):
        recipe = TokenizerConfig(vocab_size=4000, model_type=kind, num_threads=1, sample_bytes=150_000)
        build(tmp_path / kind, shards_of(sorted(set(texts)), 2), recipe)
        tokenizer, found = Tokenizer(tmp_path / kind), []
        for split in SPLITS:
            found += [tokenizer.decode(ids) for ids in sequences(tmp_path / kind, split).values()]
        assert sorted(found) == sorted(set(texts))
