"""Trace: exactly the documents and characters that a batch held, and of a document exactly the steps that saw it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from corpus.engine.errors import SetupError, UsageError
from pretrain.__main__ import main
from pretrain.config import RampupConfig
from pretrain.run import trace
from pretrain.run.trace import Sighting, Trace
from pretrain.training.state import Order, Share, State
from tests.pretrain.data.test_reader import write_folder
from tests.pretrain.texts import (
    batch_tokens,
    save_checkpoint,
    small_tokenizer,
    smallest_config,
    text_folder,
)
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer
from tokenizer.shards.record import ShardError

STRANGE = [
    "𠮷野家の𠮷" + "😀" * 20,
    "",
    "ａ😀😀😀",
    "龘",
    "\n",
]  # characters that are spelled in bytes: windows cut them
SHARDS = {
    "news": {"00000-00-train": [*STRANGE, *documents(3)], "00001-00-train": [], "00002-00-train": documents(9)[3:]},
    "books": {"00000-00-train": documents(16)[9:]},
}
RAMP = RampupConfig(start=2, increment=2, num_samples=12)


class Runs(NamedTuple):
    """Two corpora, their texts by id, and checkpoints of runs on them."""

    tokenizer: Tokenizer
    folders: dict[str, Path]
    texts: dict[str, str]
    blend: Path
    megatron: Path
    single: Path


def shares(**weights: str) -> tuple[Share, ...]:
    return tuple(Share(corpus=name, weight=weight) for name, weight in weights.items())


def orders() -> list[Order]:
    """A run that goes on with another seed and other weights, and then without a ramp-up and listed otherwise."""
    return [
        Order(step=0, num_samples=0, global_batch_size=6, seed=5, rampup=RAMP, shares=shares(news="3", books="1")),
        Order(step=5, num_samples=14, global_batch_size=6, seed=6, rampup=RAMP, shares=shares(news="1/3", books="2/3")),
        Order(step=9, num_samples=38, global_batch_size=4, seed=6, shares=shares(books="1", news="1")),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    path = tmp_path_factory.mktemp("trace")
    tokenizer = small_tokenizer(path / "tokenizer.model")
    texts: dict[str, str] = {}
    folders = {}
    for name, shards in SHARDS.items():
        folders[name] = text_folder(path / name, tokenizer, shards, first_id=len(texts))
        texts |= {f"{len(texts) + i:032x}": text for i, text in enumerate(t for s in shards.values() for t in s)}
    listed = [{"path": str(folder), "weight": 1.0} for folder in folders.values()]
    training = {"num_steps": 14, "global_batch_size": 4, "micro_batch_size": 2}
    blend = smallest_config(data={"corpora": listed}, training=training)
    state = State(step=12, num_samples=50, orders=orders())
    megatron = smallest_config(data={"corpora": listed, "order": "megatron"}, training=training)
    in_megatron = Order(
        step=0,
        num_samples=0,
        global_batch_size=4,
        seed=5,
        kind="megatron",
        run_samples=56,
        shares=shares(news="1", books="1"),
    )
    return Runs(
        tokenizer,
        folders,
        texts,
        save_checkpoint(path / "blend", blend, None, tokenizer, state),
        save_checkpoint(path / "megatron", megatron, None, tokenizer, State(12, 48, orders=[in_megatron])),
        save_checkpoint(path / "single", smallest_config(), folders["news"], tokenizer),
    )


def traced(runs: Runs, kind: str) -> Trace:
    if kind == "single":
        return Trace.of_checkpoint(runs.single, {"news": runs.folders["news"]})
    return Trace.of_checkpoint(runs.blend if kind == "blend" else runs.megatron, runs.folders)


def as_trained(found: Trace) -> dict[int, tuple[int, list[list[int]]]]:
    """The first sample and the tokens of each step, from the loaders that training uses, batch after batch."""
    steps, sample = {}, 0
    for number, order in enumerate(found.state.orders):
        later = found.state.orders[number + 1 :]
        for step in range(order.step, later[0].step if later else found.config.training.num_steps):
            size = order.batch_sizes.of_step(step)[1]
            steps[step + 1] = (sample, batch_tokens(found.corpora, order, found.config, sample, size))
            sample += size
    return steps


@pytest.mark.parametrize("kind", ["blend", "megatron", "single"])
def test_the_documents_of_a_step_are_what_the_batch_held(runs: Runs, kind: str) -> None:
    found, sizes = traced(runs, kind), []
    for step, (first, held) in as_trained(found).items():
        sightings = found.sightings(found.step(step), with_text=True)
        assert {sighting.step for sighting in sightings} == {step}
        by_sample = defaultdict(list)
        for sighting in sightings:
            by_sample[sighting.sample].append(sighting)
        assert list(by_sample) == list(range(first, first + len(held)))
        sizes.append(len(held))
        for tokens, seen in zip(held, by_sample.values(), strict=True):
            assert tokens == [token for sighting in seen for token in tokens_of(runs, sighting)]
            assert len({(sighting.corpus, sighting.epoch) for sighting in seen}) == 1
    if kind == "blend":
        assert sizes == [2, 2, 2, 4, 4, 6, 6, 6, 6, 4, 4, 4, 4, 4]


def tokens_of(runs: Runs, sighting: Sighting) -> list[int]:
    """The tokens of a sighting, encoded anew; its characters are checked against the document's text on the way."""
    text = runs.texts[sighting.id]
    assert sighting.url == f"https://例.cn/{int(sighting.id, 16)}"
    assert sighting.text == text[sighting.character_start : sighting.character_stop]
    ids = [*runs.tokenizer.encode(text), runs.tokenizer.eod]
    for token, character in (
        (sighting.token_start, sighting.character_start),
        (sighting.token_stop, sighting.character_stop),
    ):
        num_bytes = sum(len(runs.tokenizer.piece_bytes(id)) for id in ids[:token])
        assert character == sum(len(text[:place].encode()) < num_bytes for place in range(len(text)))
    tokens = ids[sighting.token_start : sighting.token_stop]
    assert len(tokens) == sighting.num_tokens
    return tokens


@pytest.mark.parametrize("kind", ["blend", "megatron", "single"])
def test_the_steps_of_a_document_are_those_that_held_it(runs: Runs, kind: str) -> None:
    """Every document of the corpora, by its id and by its URL, against all steps one by one."""
    found = traced(runs, kind)
    found.state.step, found.state.num_samples = (
        (12, 50) if kind == "blend" else (7, 14) if kind == "single" else (12, 48)
    )
    seen = defaultdict(list)
    for sighting in found.sightings([part for step in range(1, found.state.step + 1) for part in found.step(step)]):
        seen[sighting.id].append(sighting)
    names = SHARDS if kind != "single" else {"news": SHARDS["news"]}
    assert len(seen) > 5
    for number in range(sum(len(texts) for name in names for texts in SHARDS[name].values())):
        id = f"{number:032x}"
        assert found.sightings(found.documents("id", bytes.fromhex(id))) == seen[id]
        assert found.sightings(found.documents("url", f"https://例.cn/{number}")) == seen[id]


def test_all_copies_of_a_document_are_found(runs: Runs, tmp_path: Path) -> None:
    """A mixture writes some documents several times: into one shard, into two, and a corpus may repeat another's."""
    tokens = runs.tokenizer.encode("学而时习之，不亦说乎")
    copy, other = ("ab" * 16, "https://例.cn/copy", tokens), ("cd" * 16, "https://例.cn/other", tokens * 2)
    identity = runs.tokenizer.vocab_size, runs.tokenizer.eod, runs.tokenizer.sha256
    news = write_folder(tmp_path / "news", {"00000-00-train": [copy, other, copy], "00001-00-train": [copy]}, *identity)
    books = write_folder(tmp_path / "books", {"00000-00-train": [other, copy]}, *identity)
    listed = [{"path": str(news)}, {"path": str(books)}]
    folder = save_checkpoint(tmp_path / "out", smallest_config(data={"corpora": listed}), None, runs.tokenizer)
    found = Trace.of_checkpoint(folder, {"news": news, "books": books})
    found.state.step, found.state.num_samples = 7, 14
    seen = found.sightings([part for step in range(1, 8) for part in found.step(step)])
    copies = [sighting for sighting in seen if sighting.url == copy[1]]
    assert len({(sighting.corpus, sighting.shard, sighting.sequence) for sighting in copies}) == 4

    def by_place(sightings: list[Sighting]) -> list[Sighting]:
        return sorted(sightings, key=lambda each: (each.sample, each.corpus, each.shard, each.sequence))

    assert by_place(found.sightings(found.documents("url", copy[1]))) == by_place(copies)
    assert by_place(found.sightings(found.documents("id", bytes.fromhex(copy[0])))) == by_place(copies)


def test_ranks_divide_the_batch_of_a_step(runs: Runs) -> None:
    found = traced(runs, "blend")
    parts = [part for rank in range(3) for part in found.step(6, rank, 3)]
    assert parts == found.step(6)
    assert {part.sample for part in found.step(6, 1, 3)} == {16, 17}
    for rank, num_ranks in ((0, 4), (3, 3), (-1, 3)):
        with pytest.raises(UsageError, match="step 6 has a batch of 6 samples"):
            found.step(6, rank, num_ranks)


def arguments(runs: Runs, *words: str) -> list[str]:
    return ["trace", "--checkpoint", str(runs.single), "--data", str(runs.folders["news"]), *words]


def test_the_command_prints_a_step(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    found = traced(runs, "single")
    expected = found.sightings(found.step(3))
    assert {sighting.sample for sighting in expected} == {4, 5}, "step 3 is the third: samples 4 and 5"
    assert main(arguments(runs, "--step", "3", "--json")) == 0
    assert [Sighting(**json.loads(line)) for line in capsys.readouterr().out.splitlines()] == expected
    assert main(arguments(runs, "--step", "3")) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    rows = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert [(row["id"], row["url"], int(row["character_stop"])) for row in rows] == [
        (sighting.id, sighting.url, sighting.character_stop) for sighting in expected
    ]
    assert "text" not in head, "no text unless it is asked for"
    assert main(arguments(runs, "--step", "3", "--text", "--json")) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == [
        sighting.text for sighting in found.sightings(found.step(3), with_text=True)
    ]


def test_the_command_finds_a_document_and_moved_corpora(
    runs: Runs, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere"
    moved.symlink_to(runs.folders["books"])
    words = ["trace", "--checkpoint", str(runs.blend), "--json", "--data", f"books={moved}"]
    number = len(runs.texts) - 1
    assert main([*words, "--url", f"https://例.cn/{number}"]) == 0
    by_url = capsys.readouterr().out
    assert {json.loads(line)["corpus"] for line in by_url.splitlines()} == {"books"}
    assert main([*words, "--id", f"{number:032x}"]) == 0
    assert capsys.readouterr().out == by_url


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "0"], "the run has the steps 1 to 7"),
        (["--step", "8"], "the run has the steps 1 to 7"),
        (["--step", "1", "--rank", "0"], "--rank R and --ranks W go together"),
        (["--url", "x", "--rank", "0", "--ranks", "1"], "--rank R and --ranks W go together"),
        (["--url", "https://例.cn/99"], "no document of the run's corpora has it"),
        (["--id", "00"], "an id is 32 hexadecimal digits"),
        (["--id", "xyz"], "an id is 32 hexadecimal digits"),
        (["--step", "1", "--data", "other"], "was trained on one corpus, not on several"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    runs: Runs, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(runs, *words)) == UsageError.exit_code
    assert message in capsys.readouterr().err


def test_other_data_than_the_run_s_is_refused(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["trace", "--checkpoint", str(runs.single), "--step", "1"]
    assert main([*words, "--data", str(runs.folders["books"])]) == UsageError.exit_code
    assert "is not what" in capsys.readouterr().err
    assert main(words) == UsageError.exit_code
    assert "give --data FOLDER" in capsys.readouterr().err
    words = ["trace", "--checkpoint", str(runs.blend), "--step", "1", "--data", str(runs.folders["books"])]
    assert main(words) == UsageError.exit_code
    assert "give NAME=FOLDER, where NAME is one of news, books" in capsys.readouterr().err


def test_a_missing_document_table_is_named(runs: Runs, tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "news", runs.tokenizer, SHARDS["news"])
    (folder / "data" / "00002-00-train.docs.parquet").unlink()
    found = Trace.of_checkpoint(runs.single, {"news": folder})
    with pytest.raises(ShardError, match=r"00002-00-train\.docs\.parquet: missing or damaged"):
        found.sightings([part for step in range(1, 8) for part in found.step(step)])


def test_what_would_break_a_line_is_encoded() -> None:
    assert trace.printable("https://a.cn/\t\x1b[2J例\u2028") == "https://a.cn/%09%1B[2J例%E2%80%A8"
    assert trace.printable(None) == ""
    assert trace.printable(np.int64(3)) == "3"
    values = {"url": "https://例.cn/\x9b2J\u2028\u202e\n", "text": "文\U000e0001"}
    line = trace.printable_json(values)
    assert line.isprintable() and "例" in line and json.loads(line) == values


def test_without_pyarrow_the_command_says_what_is_missing(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training installs none; that the module is imported without is tests/contracts/test_imports.py."""
    monkeypatch.setattr(trace, "find_spec", lambda name: None)
    assert main(arguments(runs, "--step", "1")) == SetupError.exit_code
    assert "needs pyarrow. Run: pip install pyarrow" in capsys.readouterr().err
