"""Folders of examples: token by token what counts, whole or not there, the same bytes each time, every line accounted
for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.chat.conversations import Message
from pretrain.chat.templates import load_template
from pretrain.data.examples import ExampleReader
from pretrain.finetuning import store
from pretrain.finetuning.sources import Example, Files, survey
from pretrain.finetuning.store import Encoded, Fit, Plan, encode, write_examples
from tests.pretrain.finetuning.made import write_lines
from tests.pretrain.texts import small_tokenizer
from tokenizer.commands import verify
from tokenizer.model import Ids, Tokenizer
from tokenizer.shards import open_split
from tokenizer.shards.manifest import listed_files
from tokenizer.shards.provenance import find_rows, verify_docs


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.model")


def encoded(tokenizer: Tokenizer, template: str, *messages: Message) -> Encoded:
    (found,) = encode([Example(messages, "a.jsonl", 1)], load_template(template), tokenizer)
    return found


def test_what_counts_token_by_token(tokenizer: Tokenizer) -> None:
    """Both answers and the last end, encoded as a prompt is before there is an answer."""
    found = encoded(
        tokenizer,
        "dialogue",
        Message("system", "简"),
        Message("user", "你好"),
        Message("assistant", "好！"),
        Message("user", "再"),
        Message("assistant", "见"),
    )
    expected = [
        *((id, False) for id in tokenizer.encode("简\n问：你好\n答：")),
        *((id, True) for id in tokenizer.encode("好！")),
        *((id, False) for id in tokenizer.encode("\n问：再\n答：")),
        *((id, True) for id in tokenizer.encode("见")),
    ]
    assert found.ids.tolist() == [id for id, _ in expected]
    assert found.is_counted.tolist() == [*(counts for _, counts in expected), True]
    assert tokenizer.decode(found.ids) == "简\n问：你好\n答：好！\n问：再\n答：见"
    assert found.num_characters == len(tokenizer.decode(found.ids))
    assert found.num_counted_characters == len("好！见")


def test_a_piece_never_spans_prompt_and_answer(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.decode([id]) for id in range(tokenizer.vocab_size)]
    word = next(piece for piece in pieces if len(piece) == 2 and piece.isalpha() and not piece.isascii())
    found = encoded(tokenizer, "plain", Message("user", word[0]), Message("assistant", word[1]))
    assert found.ids.tolist() == tokenizer.encode(word[0]) + tokenizer.encode(word[1]) != tokenizer.encode(word)


def test_what_is_too_long_is_dropped_or_loses_its_beginning(tokenizer: Tokenizer) -> None:
    found = encoded(tokenizer, "plain", Message("user", "一二三四五六七八"), Message("assistant", "九十"))
    size, num_prompt = len(found.is_counted), int(found.is_counted.argmax())
    assert Fit(size, "error")(found) is found
    for too_long in ("error", "drop"):
        fit = Fit(size - 1, too_long)  # type: ignore[arg-type]
        assert fit(found) is None
        assert (fit.num_longer, fit.num_dropped, fit.num_cut, fit.longest) == (1, 1, 0, size)
    for room in range(1, size):
        fit = Fit(room, "cut")
        cut = fit(found)
        if size - room < num_prompt:
            assert cut is not None and cut.ids.tolist() == found.ids.tolist()[size - room :]
            assert cut.is_counted.tolist() == found.is_counted.tolist()[size - room :]
            assert (fit.num_cut, fit.num_dropped) == (1, 0)
        else:
            assert cut is None and (fit.num_cut, fit.num_dropped) == (0, 1)


def test_few_long_examples_are_encoded_at_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CHARACTERS_TOGETHER", 100)
    sizes: list[int] = []
    original = tokenizer.encode_batch

    def noted(texts: Sequence[str]) -> list[Ids]:
        sizes.append(sum(map(len, texts)))
        return original(texts)

    monkeypatch.setattr(tokenizer, "encode_batch", noted)
    lengths = [3] * 300 + [150, 7, 99, 1, 1]
    examples = [Example((Message("user", "问"), Message("assistant", "答" * n)), "a", n) for n in lengths]
    found = list(encode(examples, load_template("plain"), tokenizer))
    assert [each.num_counted_characters for each in found] == lengths and max(sizes) < 100 + 151
    assert [each.ids.tolist() for each in found] == [
        tokenizer.encode("问") + tokenizer.encode("答" * n) for n in lengths
    ]


PAIRS = [(f"第{number}问", f"第{number}答" * (1 + number % 4)) for number in range(50)]


def plan_of(path: Path, tokenizer: Tokenizer, share: float = 0.2, fit: Fit | None = None, **changes: Any) -> Plan:
    source = Files([str(path)], skip_bad=True)
    values: dict[str, Any] = {"template": load_template("dialogue"), "held_out": None} | changes
    return Plan(source, survey(source, share), tokenizer=tokenizer, fit=fit or Fit(64, "error"), **values)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_examples(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", PAIRS)
    path.write_text(path.read_text() + "{}\n")
    record = write_examples(tmp_path / "examples", plan_of(path, tokenizer))
    assert (record.lines, record.skipped, record.dropped, record.cut) == (51, 1, 0, 0)
    assert {name: split.examples for name, split in record.splits.items()} == {"train": 40, "validation": 10}
    texts = []
    for split in ("train", "validation"):
        (shard,) = open_split(tmp_path / "examples", split)
        shard.verify()
        verify_docs(shard)
        reader = ExampleReader(shard, record.counted[shard.prefix.name])
        assert shard.num_sequences == record.splits[split].examples
        counted = reader.counted(0, shard.num_tokens)
        said_in_all = tokenizer.decode(shard.tokens(0, shard.num_tokens)[counted])
        assert record.splits[split].counted_characters == len(said_in_all)
        assert (counted.sum(), len(counted)) == (record.splits[split].counted_tokens, record.splits[split].tokens)
        for sequence in range(shard.num_sequences):
            start, stop = shard.bounds(sequence)
            tokens, is_counted = shard.tokens(start, stop), reader.counted(start, stop)
            assert tokens[-1] == tokenizer.eod and is_counted[-1]
            asked, said = tokenizer.decode(tokens[~is_counted]), tokenizer.decode(tokens[is_counted])
            texts.append((asked, said))
            line = 1 + PAIRS.index((asked[2:-3], said))
            assert find_rows(shard, "url", f"a.jsonl:{line}") == [sequence]
    assert sorted(texts) == sorted((f"问：{asked}\n答：", said) for asked, said in PAIRS)
    assert Tokenizer(tmp_path / "examples") == tokenizer


def test_every_file_of_a_folder_is_verified(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "examples"
    write_examples(folder, plan_of(write_lines(tmp_path / "a.jsonl", PAIRS), tokenizer))
    verify.main(argparse.Namespace(data=str(folder)))
    for name in ("data/00000-00-train.counted", "model/tokenizer.model", "EXAMPLES.json"):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(WenhaiError, match="1 problems"):
            verify.main(argparse.Namespace(data=str(folder)))
        assert f"{folder / name}: its checksum is not the manifest's" in capsys.readouterr().out
        (folder / name).unlink()
        with pytest.raises(WenhaiError, match="1 problems"):
            verify.main(argparse.Namespace(data=str(folder)))
        assert f"{folder / name}: listed by the manifest but missing" in capsys.readouterr().out
        (folder / name).write_bytes(data)


def test_it_is_the_same_after_any_death(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", PAIRS)
    plan = plan_of(path, tokenizer)
    write_examples(tmp_path / "whole", plan)
    whole = files_of(tmp_path / "whole")
    out = tmp_path / "examples"

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    for module, name in ((store.durable, "write_json"), (store.manifest, "commit_files")):
        monkeypatch.setattr(module, name, die)
        with pytest.raises(KeyboardInterrupt):
            write_examples(out, plan_of(path, tokenizer))
        monkeypatch.undo()
        assert not (out / "MANIFEST.json").exists()
    record = write_examples(out, plan_of(path, tokenizer))
    assert files_of(out) == whole
    listed = listed_files(out)
    assert set(listed) == set(whole) - {"MANIFEST.json", "manifest/00000.jsonl"}
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert write_examples(out, plan_of(path, tokenizer)) == record
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_other_examples_or_options_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", PAIRS)
    write_examples(tmp_path / "examples", plan_of(path, tokenizer))
    others: Iterable[Plan] = (
        plan_of(write_lines(tmp_path / "b.jsonl", PAIRS[1:]), tokenizer),
        plan_of(path, tokenizer, share=0.5),
        plan_of(path, tokenizer, fit=Fit(63, "error")),
        plan_of(path, tokenizer, fit=Fit(64, "cut")),
        plan_of(path, tokenizer, template=load_template("plain")),
        plan_of(path, tokenizer, held_out=(Files([str(path)]), survey(Files([str(path)])))),
    )
    for plan in others:
        with pytest.raises(UsageError, match="holds other examples"):
            write_examples(tmp_path / "examples", plan)


def test_too_long_is_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [*PAIRS, ("很长" * 40, "答"), ("短", "答" * 90)])
    with pytest.raises(UsageError, match=r"2 of 52 examples are longer than the window of 64 tokens; .*--too-long cut"):
        write_examples(tmp_path / "examples", plan_of(path, tokenizer))
    for too_long, dropped, cut in (("drop", 2, 0), ("cut", 1, 1)):
        fit = Fit(64, too_long)  # type: ignore[arg-type]
        record = write_examples(tmp_path / too_long, plan_of(path, tokenizer, fit=fit))
        assert (record.dropped, record.cut) == (dropped, cut)
        assert record.lines == sum(split.examples for split in record.splits.values()) + record.skipped + record.dropped
    with pytest.raises(UsageError, match="no example is left for train: 3 were too long"):
        long = write_lines(tmp_path / "long.jsonl", [("短", "答" * number) for number in (90, 91, 92)])
        write_examples(tmp_path / "none", plan_of(long, tokenizer, fit=Fit(64, "drop")))
