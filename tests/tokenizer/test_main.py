"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tokenizer.texts import documents
from tokenizer.__main__ import main
from tokenizer.model import Tokenizer
from tokenizer.shards import SPLITS, open_split
from tokenizer.shards.provenance import docs_path

RECIPE = "[tokenizer]\nvocab_size = 600\nvalidation_ratio = 0.2\nnum_threads = 1\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    pq.write_table(pa.table({"text": documents(80)}), folder / "text.parquet")
    (folder / "recipe.toml").write_text(RECIPE)
    out = folder / "out"
    arguments = ["--recipe", str(folder / "recipe.toml"), "--out", str(out), "--text", str(folder)]
    assert main(["run", *arguments, "--workers", "0", "--quiet"]) == 0
    return out


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    class Stdin:
        buffer = io.BytesIO(data)

    monkeypatch.setattr(sys, "stdin", Stdin)


def test_run_prints_its_summary_as_json(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = built.parent
    arguments = ["--recipe", str(folder / "recipe.toml"), "--out", str(built), "--text", str(folder / "*.parquet")]
    assert main(["run", *arguments, "--workers", "0", "--json"]) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["documents"] == 80
    assert summary["tokens_train"] == sum(shard.num_tokens for shard in open_split(built, "train"))
    assert Tokenizer(summary["tokenizer"]).vocab_size == summary["vocab_size"]
    assert "up to date" in printed.err
    assert main(["run", *arguments, "--workers", "0"]) == 0
    assert "\ntext.parquet " in capsys.readouterr().err  # what came of each source


def test_check_prints_the_recipe_with_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.toml").write_text(RECIPE + "[filter.length]\nnum_chars = { min = 1 }\n")
    assert main(["check", "--recipe", str(tmp_path / "r.toml"), "--set", "tokenizer.seed=9"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["vocab_size"], printed["seed"], printed["model_type"]) == (600, 9, "bpe")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("[tokenizer]\nvocab_sise = 3\n", "did you mean vocab_size?"),
        ("tokenizer = 3\n", "a section of keys, not a value"),
        ("[tokenizer\n", "not valid TOML"),
    ],
)
def test_a_wrong_recipe_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str, message: str
) -> None:
    (tmp_path / "r.toml").write_text(recipe)
    assert main(["check", "--recipe", str(tmp_path / "r.toml")]) == 2
    assert message in capsys.readouterr().err


def test_inspect(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(built), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["split"] for row in found["shards"]] == ["train", "validation"]
    assert sum(values["documents"] for values in found["splits"].values()) == 80
    tokenizer, texts = Tokenizer(built), documents(80)
    characters = sum(values["characters"] for values in found["splits"].values())
    assert characters == sum(map(len, texts))
    for split, row in zip(SPLITS, found["shards"], strict=True):
        [shard] = open_split(built, split)
        values = found["splits"][split]
        assert values["tokens"] == shard.num_tokens
        assert values["bytes"] == shard.bin_path.stat().st_size + shard.idx_path.stat().st_size
        assert values["characters_per_token"] == pytest.approx(values["characters"] / values["tokens"], abs=1e-4)
        assert row == {"prefix": str(shard.prefix), "split": split, **values}
    identity = {"sha256": tokenizer.sha256, "vocab_size": tokenizer.vocab_size, "eod": tokenizer.eod, "dtype": "uint16"}
    assert found["tokenizers"] == [identity]

    prefix = found["shards"][0]["prefix"]
    assert main(["inspect", prefix, "--shards"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{prefix}: ")
    assert lines[1].startswith("train      1 shards, ")
    assert lines[2] == "validation 0 shards, 0 documents, 0 tokens, 0 characters, 0 bytes"
    assert tokenizer.sha256 in lines[3]


def test_verify_finds_damage_and_strangers(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(built)]) == 0
    assert capsys.readouterr().out == ""
    shard = open_split(built, "train")[0]
    clean = shard.bin_path.read_bytes()
    stranger = shard.bin_path.with_name("stranger.bin")
    try:
        shard.bin_path.write_bytes(clean[:100] + bytes([clean[100] ^ 1]) + clean[101:])
        stranger.write_bytes(b"")
        assert main(["verify", str(built)]) == 1
        problems = capsys.readouterr().out
        assert f"{shard.bin_path}: offset 0: the checksum of block 0" in problems
        assert f"{stranger}: not listed by the manifest" in problems
        shard.bin_path.unlink()
        assert main(["verify", str(built)]) == 1
        assert f"{shard.bin_path}: listed by the manifest but missing" in capsys.readouterr().out
    finally:
        shard.bin_path.write_bytes(clean)
        stranger.unlink()


def test_verify_finds_provenance_that_was_damaged_or_replaced(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = docs_path(open_split(built, "train")[0])
    clean = path.read_bytes()
    urls = pq.ParquetFile(path).metadata.row_group(0).column(1)  # the ids
    place = urls.data_page_offset + urls.total_compressed_size // 2
    table = pq.read_table(path)
    try:
        path.write_bytes(clean[:place] + bytes([clean[place] ^ 1]) + clean[place + 1 :])
        for data in (built, path):
            assert main(["verify", str(data)]) == 1
            assert f"{path}: missing or damaged" in capsys.readouterr().out
        pq.write_table(table.set_column(3, table.schema.field("source"), [["forged"] * len(table)]), path)
        assert main(["verify", str(path)]) == 0  # a shard alone: no manifest vouches for it
        assert main(["verify", str(built)]) == 1
        assert capsys.readouterr().out.startswith(f"{path}: its checksum is not the manifest's")
    finally:
        path.write_bytes(clean)


def test_data_may_be_a_url_of_this_machine_or_any_file_of_a_shard(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = open_split(built, "train")[0]
    for verb, *words in (["head", "-n", "1"], ["locate", "--token", "3"], ["inspect", "--shards"]):
        assert main([verb, f"file://{built}", *words]) == 0
        assert capsys.readouterr().out
        for suffix in (".bin", ".idx", ".meta.json", ".docs.parquet"):
            assert main([verb, f"{shard.prefix}{suffix}", *words]) == 0
            assert capsys.readouterr().out


def test_verify_of_what_holds_no_shards_is_a_failure(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sample,) = built.glob("sample-*")
    assert main(["verify", str(sample)]) == 1
    assert "lists no token shards" in capsys.readouterr().err
    shutil.copytree(built, tmp_path / "copy")
    for data in tmp_path.glob("copy/tokens-*/data"):
        shutil.rmtree(data)
    assert main(["verify", str(tmp_path / "copy")]) == 1
    assert "listed by the manifest but missing" in capsys.readouterr().out


def test_head_prints_documents(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = open_split(built, "train")[0]
    assert main(["head", str(built), "-n", "2"]) == 0
    printed = capsys.readouterr()
    tokenizer = Tokenizer(built)
    assert printed.out == "".join(tokenizer.decode(shard.sequence(index)) + "\n" for index in range(2))
    assert "sequence 1" in printed.err
    assert main(["head", str(shard.prefix), "-n", "1"]) == 0
    assert capsys.readouterr().out == tokenizer.decode(shard.sequence(0)) + "\n"


def test_encode_and_decode_are_inverse(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any, tmp_path: Path
) -> None:
    text = "学而时习之\n\t▁ <|endoftext|>\n".encode()
    feed(monkeypatch, text)
    assert main(["encode", "--tokenizer", str(built)]) == 0
    ids = capsysbinary.readouterr().out
    feed(monkeypatch, ids)
    assert main(["decode", "--tokenizer", str(built)]) == 0
    assert capsysbinary.readouterr().out == text
    feed(monkeypatch, "学而".encode())
    assert main(["encode", "--tokenizer", str(built), "--pieces"]) == 0
    assert capsysbinary.readouterr().out.decode().replace(" ", "") == "学而\n"


def test_locate_counts_tokens_through_the_shards_of_a_split(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [shard] = open_split(built, "validation")
    start, stop = shard.bounds(1)
    for words in (["--split", "validation"], ["--shard", shard.prefix.name]):
        assert main(["locate", str(built), "--token", str(stop - 1), *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["split"], found["shard"], found["sequence"]) == ("validation", shard.prefix.name, 1)
        assert (found["start"], found["stop"], found["token"]) == (start, stop, stop - 1 - start)
    assert main(["locate", str(built), "--token", str(shard.num_tokens), "--split", "validation"]) == 2
    assert "counted from 0" in capsys.readouterr().err
    assert main(["locate", str(built), "--id", found["id"]]) == 0
    [place] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert place == {key: found[key] for key in place}


def test_decode_prints_a_document_or_tokens_of_a_shard(built: Path, capsysbinary: Any) -> None:
    tokenizer = Tokenizer(built)
    [shard] = open_split(built, "train")
    ids, here = shard.tokens(0, shard.num_tokens).tolist(), ["--shard", shard.prefix.name]

    def printed(*words: str) -> str:
        assert main(["decode", *words]) == 0
        return str(capsysbinary.readouterr().out.decode())

    assert printed(str(built), *here, "--sequence", "3") == tokenizer.decode(shard.sequence(3))
    assert printed(str(shard.prefix), "--sequence", "3") == tokenizer.decode(shard.sequence(3))
    assert printed(str(shard.prefix), "--tokens", "5:400") == tokenizer.decode(ids[5:400])
    assert printed(str(shard.prefix), "--tokens", "5:5") == ""
    pieces = " ".join(map(tokenizer.piece, ids[:400]))
    assert "<|endoftext|>" in pieces
    assert printed(str(shard.prefix), "--tokens", "0:400", "--pieces") == pieces + "\n"


def test_decode_puts_characters_together_that_a_chunk_cuts(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    monkeypatch.setattr("tokenizer.commands.decode.CHUNK_TOKENS", 1)
    [shard] = open_split(built, "train")
    tokenizer = Tokenizer(built)
    ids = shard.tokens(0, shard.num_tokens)
    cut = next(place for place, id in enumerate(ids.tolist()) if tokenizer.is_byte(id) and id > 2 + 0x80)
    for first in (cut, cut + 1):
        assert main(["decode", str(shard.prefix), "--tokens", f"{first}:{cut + 40}"]) == 0
        assert capsysbinary.readouterr().out.decode() == tokenizer.decode(ids[first : cut + 40])


NOWHERE = "there is no such folder, and no shard of that prefix"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("decode", "name their tokenizer"),
        ("decode --tokenizer OUT --sequence 3", "are of a build: name it"),
        ("decode OUT", "holds many shards"),
        ("decode OUT --shard none", "not among the shards"),
        ("decode PREFIX --shard none", "prefix of one shard"),
        ("decode PREFIX", "which tokens"),
        ("decode PREFIX --sequence -1", "from 0"),
        ("decode PREFIX --sequence 80", "from 0"),
        ("decode PREFIX --tokens 3", "write it as A:B"),
        ("decode PREFIX --tokens 5:4", "from 0"),
        ("decode PREFIX --tokens=-5:4", "from 0"),
        ("decode PREFIX --tokens 0:999999999", "from 0"),
        ("head OUT -n -1", "give 0 or more"),
        *((f"{verb} memory://build", "must be local") for verb in ("inspect", "verify", "head")),
        *((f"{verb} NEW", NOWHERE) for verb in ("inspect", "verify", "head", "locate --token 1", "decode")),
        *((f"check --set {key}=600", "Write tokenizer.KEY=VALUE") for key in ("vocab_size", "tokeniser.vocab_size")),
        ("run --out NEW --text NEW --workers 0", "matches no file"),
        ("run --out NEW --text TEXT TEXT --workers 0", "listed twice"),
        ("run --out NEW --workers -1", "--workers -1"),
    ],
)
def test_usage(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    names = {"OUT": built, "PREFIX": open_split(built, "train")[0].prefix, "NEW": tmp_path / "new"}
    names["TEXT"] = built.parent / "text.parquet"
    assert main([str(names.get(word, word)) for word in words.split()]) == 2
    assert message in capsys.readouterr().err


def test_run_without_text_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--out", str(tmp_path / "out"), "--workers", "0"]) == 1
    assert "needs text" in capsys.readouterr().err


@pytest.mark.parametrize(("verb", "data"), [("encode", b"\xff\xfe"), ("decode", b"1 x")])
def test_wrong_input_exits_with_2(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, data: bytes
) -> None:
    feed(monkeypatch, data)
    assert main([verb, "--tokenizer", str(built)]) == 2
    assert "standard input" in capsys.readouterr().err
