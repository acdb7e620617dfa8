"""A checkpoint that is opened on one process or on a mesh gives the same scores, and says what it cannot do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from corpus.engine.errors import UsageError, WenhaiError
from pretrain import checkpoint
from pretrain.checkpoint import Identity
from pretrain.config import ParallelConfig, RunConfig
from pretrain.corpora import order_from
from pretrain.inference import loading as module
from pretrain.inference.loading import add_model_arguments, in_ranks, load_checkpoint
from pretrain.inference.scoring import Continuation, Request, score
from pretrain.parallel.base import mesh
from pretrain.parallel.engine import compose
from pretrain.training.step import new_run
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.texts import SEQUENCE_LENGTH, small_tokenizer, smallest_config
from tests.pretrain.tiny import tiny_loader

MODEL = {"num_layers": 4, "hidden_size": 16, "init_std": 0.2}
EXACT = {"precision": "fp64"}
# their rows are of 14, 8, 5, 5 and 2 tokens: a batch each where 8 tokens are one, so that two ranks cannot share them
# evenly
REQUESTS = [
    Request([5, 6, 7], [Continuation([n, n + 1]) for n in range(10, 16)]),
    Request([8] * 20, [Continuation([9, 10, 11])]),
    Request([], [Continuation([12]), Continuation([13])]),
    Request([3, 4], [Continuation([14]), Continuation([15, 16], 1)]),
]


def save_trained(out: Path, config: RunConfig) -> Path:
    """A checkpoint whose weights are no model's first ones: whatever is not loaded is seen."""
    out.mkdir(exist_ok=True)
    tokenizer = small_tokenizer(out / "tokenizer.model")
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        run = new_run(config, world, tiny_loader(SEQUENCE_LENGTH), order_from(config))
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in run.parameters.values():
                values = parameter.to_local() if isinstance(parameter, DTensor) else parameter
                values.add_(0.1 * torch.randn(values.shape, generator=generator, dtype=torch.float64))
        identity = Identity("d" * 64, tokenizer.path, tokenizer.sha256)
        return checkpoint.save(out, run.state, run.model, run.optimizer, config, identity, world)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run in fp64 on a layout that no question has to be asked on."""
    parallel = {"zero": 1, "recompute": "full"}
    config = smallest_config(model=MODEL, training=EXACT, parallel=parallel, data={"reset_positions": True})
    return save_trained(tmp_path_factory.mktemp("run"), config)


def arguments(folder: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    return parser.parse_args(["--checkpoint", str(folder), "--device", "cpu", *words])


def ask(folder: Path, *words: str) -> dict[str, Any]:
    """What a process gets to know."""
    with load_checkpoint(arguments(folder, *words)) as model:
        answers = list(score(model.model, REQUESTS, model.batcher, model.device, model.world, max_tokens=8))
        return {"answers": answers, "is_first": model.is_first, "vocabulary": model.tokenizer.vocab_size}


def assert_same_scores(found: Sequence[dict[str, Any]], alone: dict[str, Any]) -> None:
    expected = dict(alone["answers"])
    for rank, result in enumerate(found):
        assert result["is_first"] == (rank == 0)
        assert result["vocabulary"] == 500
        scores = dict(result["answers"])
        assert len(result["answers"]) == len(scores) and scores.keys() == expected.keys()
        for number, of_request in scores.items():
            for ours, theirs in zip(of_request, expected[number], strict=True):
                assert ours.num_tokens == theirs.num_tokens
                assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-10)


def test_two_ranks_that_share_each_matrix_and_the_tokens_give_the_scores_of_one(trained: Path) -> None:
    alone = ask(trained)
    assert alone["is_first"]
    assert len({value.log_likelihood for _, values in alone["answers"] for value in values}) == 11
    assert_same_scores(reused_ranks(ask, 2, trained, "--set", "parallel.tp=2"), alone)


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_ranks", "settings"),
    [
        (2, ["pp=2"]),
        (2, []),
        (2, ["zero=3"]),
        (2, ["tp=2", "sequence_parallel=false"]),
        (4, ["tp=2", "pp=2", "schedule=zbv"]),
    ],
)
def test_any_mesh_gives_the_scores_of_one_process(trained: Path, num_ranks: int, settings: list[str]) -> None:
    words = [word for value in settings for word in ("--set", f"parallel.{value}")]
    assert_same_scores(reused_ranks(ask, num_ranks, trained, *words), ask(trained))


@pytest.mark.long
def test_a_run_in_low_precision_is_asked_in_it_on_any_mesh(tmp_path: Path) -> None:
    folder = save_trained(tmp_path / "run", smallest_config(model=MODEL, training={"precision": "bf16"}))
    exact, coarse = ask(folder, "--set", "training.precision=fp32"), ask(folder)
    assert exact != coarse
    (of_two, _) = reused_ranks(ask, 2, folder)
    assert of_two["answers"] == coarse["answers"]
    (of_two, _) = reused_ranks(ask, 2, folder, "--set", "training.precision=fp32")
    for (_, ours), (_, theirs) in zip(sorted(of_two["answers"]), sorted(exact["answers"]), strict=True):
        assert [s.log_likelihood for s in ours] == pytest.approx([s.log_likelihood for s in theirs], rel=1e-5)


@pytest.fixture
def world() -> Iterator[mesh.World]:
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        yield world


def test_weights_alone_are_loaded_as_they_were_saved(trained: Path, world: mesh.World) -> None:
    saved, config = checkpoint.load_model(trained)
    model = compose.build(config, world)
    assert not torch.equal(model.parameters["embedding.weight"], saved.get_parameter("embedding.weight"))
    checkpoint.load_weights(trained, model, world)
    for name, parameter in model.parameters.items():
        assert torch.equal(parameter, saved.get_parameter(name)), name


@pytest.fixture
def smallest(tmp_path: Path) -> Path:
    return save_trained(tmp_path / "run", smallest_config())


def test_weights_of_another_model_and_altered_files_are_refused(smallest: Path, world: mesh.World) -> None:
    folder, config = smallest, smallest_config()
    other = compose.build(smallest_config(model={"hidden_size": 16}), world)
    with pytest.raises(WenhaiError, match="this run needs float32"):
        checkpoint.load_weights(folder, other, world)
    same = compose.build(config, world)
    (shard,) = folder.glob("*.safetensors")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    before = {name: parameter.clone() for name, parameter in same.parameters.items()}
    with pytest.raises(WenhaiError, match="was altered"):
        checkpoint.load_weights(folder, same, world)
    assert all(torch.equal(before[name], parameter) for name, parameter in same.parameters.items())
    shard.unlink()
    with pytest.raises(WenhaiError, match="is missing"):
        checkpoint.load_weights(folder, same, world)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("parallel.tp=2", "tp 2 is not the number of ranks, 1"),
        ("parallel.tp=3", "cannot share"),
        ("parallel=auto", "plans training"),
        ("parallel.tq=2", "tq"),
        ("model.num_layers=1", "a checkpoint's model is as it was trained"),
        ("parallelism=1", "a checkpoint's model is as it was trained"),
        ("training.precision=fp32", "the weights are those of fp64"),
    ],
)
def test_settings_that_a_checkpoint_cannot_have_are_refused(trained: Path, setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message), load_checkpoint(arguments(trained, "--set", setting)):
        pass


def test_an_error_is_told_by_the_first_rank_alone(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WenhaiError, match="is not a checkpoint"), load_checkpoint(arguments(trained.parent)):
        pass
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit) as end, load_checkpoint(arguments(trained)):
        raise UsageError("of all ranks")
    assert end.value.code == UsageError.exit_code


def test_a_command_starts_its_ranks_and_ends_with_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], int]] = []

    def launch(command: list[str], num_ranks: int) -> int:
        started.append((command, num_ranks))
        return 3

    monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setattr(sys, "argv", ["pretrain", "tasks", "--nproc", "2"])
    folder = Path("step-1")
    in_ranks(arguments(folder))
    with pytest.raises(SystemExit) as end:
        in_ranks(arguments(folder, "--nproc", "2"))
    assert end.value.code == 3
    assert started == [([sys.executable, "-m", "pretrain", "tasks", "--nproc", "2"], 2)]
    with pytest.raises(UsageError, match="--nproc 0"):
        in_ranks(arguments(folder, "--nproc", "0"))
    monkeypatch.setenv("RANK", "0")
    in_ranks(arguments(folder, "--nproc", "2"))
    assert len(started) == 1, "a rank starts no others"
