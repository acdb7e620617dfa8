"""Trace: exactly the documents whose tokens a batch held, found again without reading one token."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from corpus.engine.errors import UsageError
from pretrain import checkpoint, trace
from pretrain.__main__ import main
from pretrain.checkpoint import Identity, Order, State
from pretrain.config import ParallelConfig, RunConfig
from pretrain.data import data_digest, open_loader
from pretrain.parallel import mesh
from pretrain.train import new_run
from tests.pretrain.data.test_reader import EOD, Document, write_folder
from tokenizer.shards import ShardError, open_split

SEQUENCE_LENGTH = 6
SEED = 5


def marked(shard: int, num_documents: int) -> list[Document]:
    """Documents whose every token names them: the token is the document's number over all shards, plus 2."""
    numbers = range(20 * shard, 20 * shard + num_documents)
    return [(f"{number:032x}", f"https://例.cn/{number}", [number + 2] * (number % 7)) for number in numbers]


def marked_folder(path: Path) -> Path:
    return write_folder(path, {f"{shard:05}-00-train": marked(shard, size) for shard, size in enumerate([11, 1, 17])})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_folder(tmp_path_factory.mktemp("trace") / "tokens")


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("run"), folder, Path(__file__), "0" * 64)


def test_trace_is_what_the_batch_held(folder: Path) -> None:
    """Every sample's tokens, counted by the document they name, are the sightings of that sample."""
    loader = open_loader(folder, "train", SEQUENCE_LENGTH, SEED)
    shards = open_split(folder, "train")
    num_samples = 2 * loader.num_windows + 1
    batch = loader.batch(0, num_samples)
    found = trace.trace(shards, SEQUENCE_LENGTH, SEED, 0, num_samples)
    for sample in range(num_samples):
        tokens = [*batch.tokens[sample].tolist(), int(batch.targets[sample, -1])]
        named = Counter(token - 2 for token in tokens if token != EOD)
        sightings = [sighting for sighting in found if sighting.sample == sample]
        assert sum(sighting.num_tokens for sighting in sightings) == SEQUENCE_LENGTH + 1
        counted = {int(s.id, 16): s.num_tokens for s in sightings}
        assert len(counted) == len(sightings), "a document comes once a sample"
        for number, count in named.items():
            assert counted[number] in (count, count + 1), "its tokens, perhaps with its end"
        for number in set(counted) - set(named):
            assert counted[number] == 1, "only its end"
        for sighting in sightings:
            number = int(sighting.id, 16)
            assert sighting.url == f"https://例.cn/{number}"
            assert sighting.shard == f"{number // 20:05}-00-train"
            assert sighting.sequence == number % 20
            assert sighting.source == f"{number // 20:05}"


def test_a_document_table_of_another_shard_is_refused(tmp_path: Path) -> None:
    folder = marked_folder(tmp_path / "tokens")
    shards = open_split(folder, "train")
    path = folder / "data" / "00002-00-train.docs.parquet"
    path.write_bytes((folder / "data" / "00001-00-train.docs.parquet").read_bytes())
    with pytest.raises(ShardError, match=r"00002-00-train\.docs\.parquet: 1 rows for 17 sequences"):
        trace.trace(shards, SEQUENCE_LENGTH, SEED, 0, 20)
    path.write_bytes(b"PAR1")
    with pytest.raises(ShardError, match=r"00002-00-train\.docs\.parquet: missing or damaged"):
        trace.trace(shards, SEQUENCE_LENGTH, SEED, 0, 20)
    path.unlink()
    with pytest.raises(ShardError, match=r"00002-00-train\.docs\.parquet: missing or damaged"):
        trace.trace(shards, SEQUENCE_LENGTH, SEED, 0, 20)


def tiny_config(vocab_size: int = 100) -> RunConfig:
    return RunConfig.model_validate(
        {
            "model": {
                "num_layers": 1,
                "hidden_size": 8,
                "num_heads": 2,
                "sequence_length": SEQUENCE_LENGTH,
                "vocab_size": vocab_size,
                "padded_vocab_size": -(-vocab_size // 128) * 128,
            },
            "optimizer": {"learning_rate": 1e-3},
            "training": {"num_steps": 7, "global_batch_size": 2, "micro_batch_size": 1, "seed": SEED},
            "checkpoint": {"every_steps": 1},
            "evaluation": {"every_steps": 1},
        }
    )


def save_checkpoint(out: Path, data: Path, tokenizer: Path, tokenizer_sha256: str, vocab_size: int = 100) -> Path:
    """The checkpoint of a model that has its first weights."""
    config = tiny_config(vocab_size)
    loader = open_loader(data, "train", SEQUENCE_LENGTH, SEED)
    identity = Identity(data_digest(open_split(data, "train")), tokenizer, tokenizer_sha256)
    torch.manual_seed(0)
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        run = new_run(config, world, loader)
        return checkpoint.save(out, run.state, run.parameters, run.optimizer, config, identity, world)


def test_the_command_prints_a_step(folder: Path, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["trace", "--checkpoint", str(saved), "--data", str(folder), "--step", "3"]
    expected = trace.trace(open_split(folder, "train"), SEQUENCE_LENGTH, SEED, 4, 2)
    assert {sighting.sample for sighting in expected} == {4, 5}, "step 3 is the third: samples 4 and 5"

    assert main([*arguments, "--json"]) == 0
    assert [trace.Sighting(**json.loads(line)) for line in capsys.readouterr().out.splitlines()] == expected
    assert main(arguments) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    rows = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert [row["id"] for row in rows] == [sighting.id for sighting in expected]
    assert [row["url"] for row in rows] == [sighting.url for sighting in expected]


def test_a_run_whose_batch_and_seed_changed_is_traced_as_it_went(
    folder: Path, saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(orders=[Order(0, 0, 2, SEED), Order(2, 4, 3, SEED + 1)])
    monkeypatch.setattr(trace, "read_state", lambda _: state)
    shards = open_split(folder, "train")
    for step, seed, first, count in ((2, SEED, 2, 2), (3, SEED + 1, 4, 3), (4, SEED + 1, 7, 3)):
        arguments = ["trace", "--checkpoint", str(saved), "--data", str(folder), "--step", str(step), "--json"]
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        expected = trace.trace(shards, SEQUENCE_LENGTH, seed, first, count)
        assert [trace.Sighting(**json.loads(line)) for line in lines] == expected


@pytest.mark.parametrize("step", ["0", "8", "-1"])
def test_a_step_the_run_has_not_is_refused(
    folder: Path, saved: Path, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "--checkpoint", str(saved), "--data", str(folder), "--step", step]) == UsageError.exit_code
    assert "the run has the steps 1 to 7" in capsys.readouterr().err


def test_other_data_than_the_run_s_is_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_folder(tmp_path / "other", {"00000-00-train": marked(0, 12)})
    assert main(["trace", "--checkpoint", str(saved), "--data", str(other), "--step", "1"]) == UsageError.exit_code
    assert "is not what" in capsys.readouterr().err


def test_what_would_break_a_line_is_encoded() -> None:
    assert trace.printable("https://a.cn/\t\x1b[2J例\u2028") == "https://a.cn/%09%1B[2J例%E2%80%A8"
    assert trace.printable(None) == ""
    assert trace.printable(np.int64(3)) == "3"
