"""Token files of other programs: golden bytes become shards of ours, and what does not fit is refused in words."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import WenhaiError
from corpus.engine.run import current
from tests.tokenizer.foreign_files import write_datatrove, write_megatron
from tests.tokenizer.texts import documents
from tokenizer.__main__ import main
from tokenizer.commands import import_shards
from tokenizer.model import Tokenizer
from tokenizer.shards import import_formats, open_split
from tokenizer.shards.import_formats import DatatroveFile, MegatronFile

EOD = 1


def run(*words: str | Path) -> int:
    return main(["adopt", *map(str, words), "--workers", "0", "--quiet"])


def sequences(out: Path, split: str = "train") -> list[list[int]]:
    return [shard.sequence(index).tolist() for shard in open_split(out, split) for index in range(shard.num_sequences)]


def bodies(tokenizer: Tokenizer, count: int) -> list[list[int]]:
    return [tokenizer.encode(text) for text in documents(count)]


# One file of each format, byte for byte: documents [5, 6, eod] (of two sequences) and [7, eod].
MEGATRON_BIN = struct.pack("<5H", 5, 6, 1, 7, 1)
MEGATRON_IDX = (
    b"MMIDIDX\x00\x00"
    + struct.pack("<QBQQ", 1, 8, 3, 3)
    + struct.pack("<3i", 2, 1, 2)
    + struct.pack("<3q", 0, 4, 6)
    + struct.pack("<3q", 0, 2, 3)
)
DATATROVE = {".ds": struct.pack("<5H", 5, 6, 1, 7, 1), ".ds.index": struct.pack("<2Q", 3, 5)}


def test_golden_bytes_of_both_formats(tmp_path: Path, model_file: Path) -> None:
    (tmp_path / "m.bin").write_bytes(MEGATRON_BIN)
    (tmp_path / "m.idx").write_bytes(MEGATRON_IDX)
    for suffix, data in DATATROVE.items():
        (tmp_path / f"d{suffix}").write_bytes(data)
    (tmp_path / "d.ds.metadata").write_bytes(b"gpt2|2\n5\n5.0 T")
    out = tmp_path / "out"
    assert run(tmp_path / "m", "--validation", tmp_path / "d.ds", "--tokenizer", model_file, "--out", out) == 0
    assert sequences(out) == sequences(out, "validation") == [[5, 6, 1], [7, 1]]
    for split, name in (("train", "m"), ("validation", "d")):
        [shard] = open_split(out, split)
        assert shard.prefix.name == f"{name}-{split}"
        assert shard.bin_path.read_bytes() == MEGATRON_BIN
        rows = pq.read_table(f"{shard.prefix}.docs.parquet").to_pylist()
        ids = [xxhash.xxh3_128_digest(struct.pack("<2H", 5, 6)), xxhash.xxh3_128_digest(struct.pack("<H", 7))]
        assert rows == [
            {"sequence": 0, "id": ids[0], "url": None, "source": name, "num_tokens": 3},
            {"sequence": 1, "id": ids[1], "url": None, "source": name, "num_tokens": 2},
        ]
    assert main(["verify", str(out)]) == 0


def test_an_adopted_build_is_a_build(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    texts = documents(40)
    tokens = [[*ids, EOD] for ids in bodies(tokenizer, 40)]
    write_megatron(tmp_path / "a", [[ids[:4], ids[4:]] for ids in tokens[:30]], "int32")
    write_megatron(tmp_path / "b", [[ids] for ids in tokens[30:]], "int64")
    out = tmp_path / "out"
    assert run(tmp_path / "a.bin", tmp_path / "b.idx", "--tokenizer", tokenizer.path, "--out", out, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert sequences(out) == tokens
    counts = current(str(out), "tokens").counts
    assert (counts.documents_in, counts.documents_out, counts.bytes_out) == (
        40,
        40,
        sum(len(t.encode()) for t in texts),
    )
    expected = {"documents_train": 40, "tokens_train": sum(map(len, tokens)), "characters": sum(map(len, texts))}
    assert counts.extra == expected
    assert {key: summary[key] for key in expected} == expected
    assert sum(shard.meta.num_characters for shard in open_split(out, "train")) == expected["characters"]
    assert main(["verify", str(out)]) == 0
    assert main(["head", str(out), "-n", "1"]) == 0
    assert capsys.readouterr().out == texts[0] + "\n"
    first = sum(map(len, tokens[:31]))  # of the second shard's second document
    assert main(["locate", str(out), "--token", str(first)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["shard"], found["sequence"], found["token"], found["source"]) == ("b-train", 1, 0, "b")


def test_equal_documents_have_equal_ids_whatever_the_type(tmp_path: Path, model_file: Path) -> None:
    write_megatron(tmp_path / "a", [[[7, 8, EOD]], [[7], [8, EOD]]], "int64")
    write_datatrove(tmp_path / "b.ds", [[7, 8, EOD]], itemsize=4)
    assert run(tmp_path / "a", tmp_path / "b.ds", "--tokenizer", model_file, "--out", tmp_path / "out") == 0
    prefixes = [shard.prefix for shard in open_split(tmp_path / "out", "train")]
    assert len({id for prefix in prefixes for id in pq.read_table(f"{prefix}.docs.parquet")["id"].to_pylist()}) == 1


def test_bytes_do_not_depend_on_batches_or_workers(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [[*ids, EOD] for ids in bodies(tokenizer, 30)]
    for name in "ab":
        write_megatron(tmp_path / name, [[ids[:9], ids[9:]] for ids in tokens])
    words = [str(tmp_path / name) for name in "ab"]
    arguments = ["adopt", *words, "--tokenizer", str(tokenizer.path), "--quiet"]
    found = []
    for out, workers, batch in (("one", "0", 1 << 20), ("two", "2", 1 << 20), ("three", "0", 300)):
        monkeypatch.setattr(import_shards, "BATCH_TOKENS", batch)
        monkeypatch.setattr(import_formats, "CHUNK_ROWS", 7 if batch == 300 else 1 << 20)
        assert main([*arguments, "--out", str(tmp_path / out), "--workers", workers]) == 0
        folder = Path(current(str(tmp_path / out), "tokens").url)
        found.append({path.name: path.read_bytes() for path in folder.glob("data/*") if path.suffix != ".parquet"})
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 6


def test_end_of_document_ids(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_eod = tokenizer.vocab_size + 2  # Megatron's SentencePiece wrapper gives <EOD> an id above the model's own
    cases: list[tuple[list[list[int]], list[str], str]] = [
        ([[7, EOD], [8, 9]], [], "document 1: does not end with the end-of-document id 1"),
        ([[7, EOD], []], [], "document 1: does not end"),
        ([[7, EOD], [8, EOD, 9, EOD]], [], "document 1: holds the end-of-document id 1 inside"),
        ([[7, EOD, EOD]], [], "document 0: holds"),
        ([[7], [8, EOD]], ["--append-eod"], "document 1: holds the end-of-document id 1 inside"),
        ([[7, EOD]], ["--eod", str(foreign_eod)], f"does not end with the end-of-document id {foreign_eod}"),
        ([[7, EOD, foreign_eod]], ["--eod", str(foreign_eod)], "end-of-document token 1"),
        ([[7, foreign_eod, EOD]], [], f"document 0: token id {foreign_eod} is outside"),
        ([[-1, EOD]], [], "document 0: token id -1 is outside"),
    ]
    for number, (given_documents, options, message) in enumerate(cases):
        write_megatron(tmp_path / "a", [[ids] for ids in given_documents], "int32")
        out = tmp_path / f"bad{number}"
        assert run(tmp_path / "a", "--tokenizer", tokenizer.path, "--out", out, *options) == 1
        error = capsys.readouterr().err
        assert message in error
        assert str(tmp_path / "a.bin") in error
    for options, last in (([], [EOD]), (["--append-eod"], []), (["--eod", str(foreign_eod)], [foreign_eod])):
        write_megatron(tmp_path / "a", [[[7], [8, *last]], [last], [[9, *last]]], "int32")
        out = tmp_path / f"good{len(options)}{last}"
        assert run(tmp_path / "a", "--tokenizer", tokenizer.path, "--out", out, *options) == 0
        assert sequences(out) == [[7, 8, EOD], [EOD], [9, EOD]]


def pack(place: int, kind: str, value: int) -> Any:
    def change(data: bytearray) -> None:
        struct.pack_into(kind, data, place, value)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pack(0, "<8s", b"TNTIDX\0\0"), "before Megatron's `mmap`"),  # type: ignore[arg-type]
        (pack(0, "<B", 0), "not an index"),
        (pack(9, "<Q", 2), "index version 2"),
        (pack(17, "<B", 7), "dtype code 7"),
        (pack(17, "<B", 0), "dtype code 0"),
        (pack(18, "<Q", 2**64 - 1), "sequences and"),
        (pack(18, "<Q", 2**61), "sequences and"),
        (pack(26, "<Q", 2**64 - 1), "document entries"),
        (pack(26, "<Q", 0), "document entries"),
        (pack(34, "<i", -2), "negative length"),
        (pack(34, "<i", 2**31 - 1), "does not begin"),
        (pack(42, "<i", 2**31 - 1), "are not the 5 tokens"),
        (pack(42, "<i", 1), "are not the 5 tokens"),
        (pack(54, "<q", -(2**62)), "sequence 1 does not begin"),
        (pack(54, "<q", 2), "sequence 1 does not begin"),
        (pack(70, "<q", 1), "document table"),
        (pack(78, "<q", 4), "document table"),
        (pack(78, "<q", -1), "document table"),
        (pack(86, "<q", 2), "1 sequences after the last document"),
        (pack(86, "<q", 2**62), "document table"),
        (lambda data: data.extend(bytes(3)), "modes"),
        (lambda data: data.extend(bytes(8)), "102 bytes"),
        (lambda data: data.pop(), "93 bytes"),
        (lambda data: data.__delitem__(slice(20, None)), "not an index"),
    ],
)
def test_a_megatron_index_that_lies_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    (tmp_path / "a.bin").write_bytes(MEGATRON_BIN)
    index = bytearray(MEGATRON_IDX)
    change(index)
    (tmp_path / "a.idx").write_bytes(index)
    with pytest.raises(WenhaiError, match=rf"a\.idx: offset \d+: .*{message}"):
        list(MegatronFile(tmp_path / "a.bin", tmp_path / "a.idx").ends())


def test_a_document_table_that_ascends_only_where_differences_wrap_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(MEGATRON_BIN)
    table = struct.pack("<4q", 0, 2**63 - 1, -2, 3)
    (tmp_path / "a.idx").write_bytes(MEGATRON_IDX[:26] + struct.pack("<Q", 4) + MEGATRON_IDX[34:70] + table)
    with pytest.raises(WenhaiError, match="document table is not of ascending"):
        list(MegatronFile(tmp_path / "a.bin", tmp_path / "a.idx").ends())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (MEGATRON_BIN[:-1], r"a\.bin: offset 8: ends inside a token"),
        (MEGATRON_BIN[:-2], r"a\.idx: .*are not the 4 tokens"),
        (MEGATRON_BIN + b"\0\0", r"a\.idx: .*are not the 6 tokens"),
    ],
)
def test_a_megatron_bin_of_another_size_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.idx").write_bytes(MEGATRON_IDX)
    (tmp_path / "a.bin").write_bytes(data)
    with pytest.raises(WenhaiError, match=message):
        list(MegatronFile(tmp_path / "a.bin", tmp_path / "a.idx").ends())


@pytest.mark.parametrize(
    ("suffix", "data", "message"),
    [
        (".ds", bytes(11), "11 bytes of tokens"),
        (".ds", b"", "0 bytes of tokens"),
        (".ds.index", struct.pack("<2Q", 3, 5) + b"\0", "not a list"),
        (".ds.index", struct.pack("<2Q", 3, 2**63), "tokens of 2 or 4"),
        (".ds.index", struct.pack("<3Q", 4, 3, 5), "do not ascend"),
        (".ds.index", struct.pack("<3Q", 3, 2**64 - 1, 5), "do not ascend"),
        (".ds.index", struct.pack("<3Q", 2**63, 2**63, 5), "do not ascend"),
        (".ds.metadata", b"x|4\n5\n", "10 bytes of tokens"),
        (".ds.metadata", b"x|2\n6\n", "5 tokens"),
        (".ds.metadata", b"x|-2\n5\n", "10 bytes of tokens"),
        (".ds.metadata", b"x", "not the metadata"),
        (".ds.metadata", b"x|y\n5\n", "not the metadata"),
        (".ds.metadata", b"\xff|2\n5\n", "not the metadata"),
    ],
)
def test_a_datatrove_file_that_lies_is_refused(tmp_path: Path, suffix: str, data: bytes, message: str) -> None:
    files = {**DATATROVE, ".ds.metadata": b"x|2\n5\n5.0 T"} | {suffix: data}
    for name, content in files.items():
        (tmp_path / f"a{name}").write_bytes(content)
    with pytest.raises(WenhaiError, match=message):
        list(DatatroveFile(*(tmp_path / f"a{name}" for name in files)).ends())


TOKENS = st.lists(st.integers(0, 120), max_size=5)


@given(st.lists(st.lists(TOKENS, max_size=4), max_size=12), st.sampled_from(["int8", "uint8", "uint16", "int64"]))
def test_documents_end_where_they_end(documents: list[list[list[int]]], dtype: str) -> None:
    """In tables of any shape, empty sequences and documents among them, read in chunks of any size."""
    joined = [[id for sequence in document for id in sequence] for document in documents]
    with tempfile.TemporaryDirectory() as folder:
        prefix = write_megatron(Path(folder, "a"), documents, dtype)
        path = write_datatrove(Path(folder, "a.ds"), joined, metadata=False)
        files = [
            MegatronFile(Path(f"{prefix}.bin"), Path(f"{prefix}.idx")),
            DatatroveFile(path, Path(f"{path}.index")),
        ]
        for file in files:
            assert (file.num_documents, file.num_tokens) == (len(joined), sum(map(len, joined)))
            with pytest.MonkeyPatch.context() as patch:
                for rows, batch in ((1, 1), (2, 7), (1 << 20, 1 << 20)):
                    patch.setattr(import_formats, "CHUNK_ROWS", rows)
                    patch.setattr(import_shards, "BATCH_TOKENS", batch)
                    ends = [end for chunk in file.ends() for end in chunk.tolist()]
                    assert ends == np.cumsum([len(ids) for ids in joined]).tolist()
                    numbers, found = [], []
                    for first, tokens, stops in import_shards.batches(file):
                        numbers.append(first)
                        found += [part.tolist() for part in np.split(tokens, stops[:-1])]
                    assert found == joined
                    assert numbers == sorted(set(numbers))


def test_a_document_that_does_not_fit_memory_is_refused_before_it_is_read(
    tmp_path: Path, model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    length = 2**31 - 1
    write_megatron(tmp_path / "a", [])
    with open(tmp_path / "a.bin", "wb") as file:
        file.truncate(2 * length)  # sparse
    (tmp_path / "a.idx").write_bytes(
        struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 1, 2) + struct.pack("<iqqq", length, 0, 0, 1)
    )
    (found,) = MegatronFile(tmp_path / "a.bin", tmp_path / "a.idx").ends()
    assert found.tolist() == [length]
    with pytest.raises(WenhaiError, match=r"document 0 has 2,147,483,647 tokens; 134,217,728 at most"):
        next(import_shards.batches(MegatronFile(tmp_path / "a.bin", tmp_path / "a.idx")))


def test_usage(tmp_path: Path, model_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--tokenizer", model_file, "--out", tmp_path / "out"]
    write_datatrove(tmp_path / "a.ds", [[7, EOD]])
    (tmp_path / "a.ds.loss").write_bytes(b"\1\1")
    for name in ("x1", "x2"):
        write_megatron(tmp_path / name, [[[7, EOD]]])
    for suffix in (".bin", ".idx"):
        (tmp_path / f"link{suffix}").symlink_to(tmp_path / f"x1{suffix}")
    (tmp_path / "folder.bin").mkdir()
    (tmp_path / "pipe.bin").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.idx")
    for words, message in (
        ([], "nothing to adopt"),
        ([tmp_path / "none"], "none.bin: is no file"),
        ([tmp_path / "none.ds"], "none.ds: is no file"),
        ([tmp_path / "x*"], "x*.bin: is no file. Name prefixes one by one"),
        ([tmp_path / "folder"], "folder.bin: is no file"),
        ([tmp_path / "pipe"], "pipe.idx: is no file"),
        ([tmp_path / "x1.bin", tmp_path / "x1.idx"], "x1.bin: named twice"),
        ([tmp_path / "x1", "--validation", tmp_path / "link"], "x1.bin: named twice"),
        ([tmp_path / "a.ds"], "a.ds.loss: which tokens count"),
        (["memory://a"], "from a local disk"),
    ):
        assert run(*words, *given) == 2
        assert message in capsys.readouterr().err
    assert run(tmp_path / "x1", *given, "--tokenizer", "memory://model") == 2
    assert "--tokenizer memory://model: is read from a local disk" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(tmp_path / "a.ds", *given, "--eod", "1", "--append-eod")
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["text", "sample"])
def test_a_build_with_text_or_a_tokenizer_of_its_own_is_left_alone(
    tmp_path: Path, model_file: Path, capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    entry = {"folder": f"{stage}-0", "upstream": {}}
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "stages": {stage: entry}}))
    write_megatron(tmp_path / "a", [[[7, EOD]]])
    assert run(tmp_path / "a", "--tokenizer", model_file, "--out", tmp_path) == 2
    assert "Adopt into another folder" in capsys.readouterr().err


def test_names_that_collide_are_numbered(tmp_path: Path, model_file: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_megatron(tmp_path / name / "x.1", [[[7, EOD]]])
    words = [tmp_path / name / "x.1" for name in ("two", "one")]
    assert run(*words, "--tokenizer", model_file, "--out", tmp_path / "out") == 0
    names = [shard.prefix.name for shard in open_split(tmp_path / "out", "train")]
    assert names == ["00000-x.1-train", "00001-x.1-train"]


def test_a_file_without_documents_makes_no_shard(tmp_path: Path, model_file: Path) -> None:
    write_megatron(tmp_path / "a", [])
    write_datatrove(tmp_path / "b.ds", [], metadata=False)
    assert run(tmp_path / "a", tmp_path / "b.ds", "--tokenizer", model_file, "--out", tmp_path / "out") == 0
    assert open_split(tmp_path / "out", "train") == []
