"""FAULTS row 28: a loss or gradient that is not finite. What a step then does on which ranks is
tests/pretrain/test_step.py.

One document of a small corpus holds a token that no other has, and a model is made that is not finite where it sees it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor

from corpus.engine.errors import WenhaiError
from pretrain import checkpoint
from pretrain.config import DataConfig, RunConfig
from pretrain.model import GPT
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.run import incidents, train
from pretrain.run.trace import Part, Trace
from pretrain.staging import stage_locally
from tests.pretrain.data.test_reader import write_folder
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.test_staging import build
from tests.pretrain.texts import small_tokenizer, smallest_config
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer

NUM_STEPS = 22  # more than an epoch
NUM_DOCUMENTS = 12


class Corpus(NamedTuple):
    """Its folder and tokenizer, and the document with the bad token."""

    folder: Path
    tokenizer: Path
    bad_token: int
    bad_id: str


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("corpus")
    tokenizer = small_tokenizer(path / "tokenizer.model")
    return write_corpus(path, tokenizer)


def write_corpus(path: Path, tokenizer: Tokenizer) -> Corpus:
    """Documents of 40 tokens or fewer."""
    rows: list[Any] = [
        (f"{number:032x}", f"https://例.cn/{number}", tokenizer.encode(text)[:40])
        for number, text in enumerate(documents(NUM_DOCUMENTS + 3))
    ]
    bad_token = min(set(range(300, tokenizer.vocab_size)) - {token for _, _, tokens in rows for token in tokens})
    bad_id, _, tokens = rows[5]
    tokens[10] = bad_token
    shards = {"00000-00-train": rows[:NUM_DOCUMENTS], "00000-00-validation": rows[NUM_DOCUMENTS:]}
    folder = write_folder(path / "tokens", shards, tokenizer.vocab_size, tokenizer.eod, tokenizer.sha256)
    return Corpus(folder, tokenizer.path, bad_token, bad_id)


def config(**training: Any) -> RunConfig:
    values = {"num_steps": NUM_STEPS, "global_batch_size": 4, "micro_batch_size": 1, **training}
    rare = {"every_steps": NUM_STEPS, "sample_tokens": 0}
    return smallest_config(
        training=values, evaluation=rare, checkpoint={"every_steps": NUM_STEPS}, metrics={"tensorboard": False}
    )


def run(config: RunConfig, corpus: Corpus, out: Path) -> tuple[str, list[str]]:
    """What a run on this rank ends with, and what it says of its steps."""
    said: list[str] = []
    with mock.patch.object(incidents, "log_message", said.append), redirect_stdout(StringIO()):
        try:
            train.train(config, corpus.folder, out, corpus.tokenizer)
        except WenhaiError as error:
            return str(error), said
    return "", said


def run_poisoned(config: RunConfig, corpus: Corpus, out: Path) -> tuple[str, list[str]]:
    with poisoned(corpus.bad_token):
        return run(config, corpus, out)


@contextmanager
def poisoned(bad_token: int) -> Iterator[None]:
    """A model whose logits are not finite where a sample holds the token."""
    forward = GPT.forward

    def bad_forward(model: GPT, x: Tensor, *args: Any, **named: Any) -> Tensor:
        y = forward(model, x, *args, **named)
        return y * math.nan if model.training and (x == bad_token).any() else y

    with mock.patch.object(GPT, "forward", bad_forward):
        yield


def run_failing(
    config: RunConfig, corpus: Corpus, out: Path, rank: int, first: int, last: int
) -> tuple[str, list[str]]:
    """The losses of some attempts (from 1) to compute a step are not finite on a rank."""
    attempts: list[int] = []
    original = ParallelModel.step

    def step(model: ParallelModel, *args: Any) -> Tensor:
        losses = original(model, *args)
        attempts.append(1)
        is_here = torch.distributed.get_rank() == rank and first <= len(attempts) <= last
        return losses * math.nan if is_here else losses

    with mock.patch.object(ParallelModel, "step", step):
        return run(config, corpus, out)


def recorded(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_the_documents_of_bad_micro_batches_are_listed(corpus: Corpus, tmp_path: Path) -> None:
    """By id and URL, without text: every sample with the bad token, and no other; training goes on."""
    (error, said), (_, silent) = reused_ranks(run_poisoned, 2, config(), corpus, tmp_path)
    assert error == "" and silent == []
    folder = checkpoint.newest(tmp_path)
    assert folder is not None
    trace = Trace.of_checkpoint(folder, {"tokens": corpus.folder})
    expected = {}
    for step in range(1, NUM_STEPS + 1):
        parts = trace.step(step)
        bad = {part.sample for part in parts if corpus.bad_token in inputs(parts, part.sample)}
        if bad:
            sightings = trace.sightings([part for part in parts if part.sample in bad])
            expected[step] = [(sighting.sample, sighting.id, sighting.url) for sighting in sightings]
    assert expected and len(expected) < NUM_STEPS
    lines = recorded(tmp_path, "not_finite")
    assert [line["step"] for line in lines] == list(expected)
    for line, message in zip(lines, said, strict=True):
        step = line["step"]
        assert line["verdict"] == "data" and line["loss"] is None and line["grad_norm"] is None
        assert line["file"] == f"not_finite/step-{step:08d}.jsonl"
        listed = [json.loads(text) for text in (tmp_path / line["file"]).read_text("utf-8").splitlines()]
        assert [(row["sample"], row["id"], row["url"]) for row in listed] == expected[step]
        assert corpus.bad_id in [row["id"] for row in listed] and "text" not in listed[0]
        assert line["documents"] == len({row["id"] for row in listed})
        owners = sorted({(sample % 4) // 2 for sample, _, _ in expected[step]})  # two of a step's four samples each
        assert line["ranks"] == owners
        assert message.startswith(f"WARNING: step {step}: loss nan, gradient norm nan, first on rank")
        assert "not finite when computed again: no weight changed" in message
        assert f"{line['file']} lists {line['documents']} documents." in message
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    assert summary["bad_steps"] == len(lines) and summary["steps"] == NUM_STEPS
    assert math.isfinite(summary["held_out_bits_per_character"])


def inputs(parts: Sequence[Part], sample: int) -> list[int]:
    """The tokens of a sample, but for the last, which is a target only."""
    tokens: list[int] = []
    for part in parts:
        if part.sample == sample:
            first = part.shard.bounds(part.sequence)[0]
            tokens += part.shard.tokens(first + part.start, first + part.stop).tolist()
    return tokens[:-1]


def test_a_fault_that_comes_once_is_the_hardware_s(corpus: Corpus, tmp_path: Path) -> None:
    (error, said), _ = reused_ranks(run_failing, 2, config(num_steps=6), corpus, tmp_path, 1, 5, 5)
    assert error == ""
    (line,) = recorded(tmp_path, "not_finite")
    assert (line["step"], line["verdict"], line["ranks"]) == (5, "transient", [1])
    assert (line["documents"], line["file"]) == (0, None) and not (tmp_path / "not_finite").exists()
    assert "first on rank 1 (" in said[0] and "finite when computed again, and applied" in said[0]


def test_a_run_that_stays_not_finite_stops(corpus: Corpus, tmp_path: Path) -> None:
    """On all ranks, with what to do; two attempts a step, and the documents of each."""
    answers = reused_ranks(run_failing, 2, config(max_bad_steps=2), corpus, tmp_path, 0, 3, 99)
    for error, _ in answers:
        assert error.startswith("step 4: loss or gradient was not finite 2 times in a row, also when computed again.")
        assert str(tmp_path / "not_finite") in error and "training.seed" in error
    assert [line["step"] for line in recorded(tmp_path, "not_finite")] == [3, 4]
    assert sorted(path.name for path in (tmp_path / "not_finite").iterdir()) == [
        "step-00000003.jsonl",
        "step-00000004.jsonl",
    ]
    assert checkpoint.newest(tmp_path) is None


def test_documents_that_cannot_be_listed_end_no_run(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, small_tokenizer(tmp_path / "tokenizer.model"))
    next(corpus.folder.rglob("*train.docs.parquet")).unlink()
    ((error, said),) = reused_ranks(run_failing, 1, config(num_steps=3), corpus, tmp_path / "out", 0, 2, 3)
    assert error == ""
    (line,) = recorded(tmp_path / "out", "not_finite")
    assert (line["step"], line["documents"], line["file"]) == (2, 0, None)
    assert "the documents of step 2 cannot be listed" in said[0] and "docs.parquet" in said[0]
    assert "`python -m pretrain trace --step 2` lists its documents" in said[1]


def test_documents_of_a_store_are_listed_from_the_copies_of_this_machine(tmp_path: Path) -> None:
    store = build(tmp_path / "store")
    settings = config(num_steps=3).model_copy(update={"data": DataConfig(cache=str(tmp_path / "cache"))})
    url = f"local://{store}"
    with stage_locally(settings.data, {"store": url}):
        shutil.rmtree(store / "tokens-1/data")
    away = Corpus(url, None, 0, "")  # type: ignore[arg-type]
    ((error, _),) = reused_ranks(run_failing, 1, settings, away, tmp_path / "out", 0, 2, 3)
    assert error == ""
    (line,) = recorded(tmp_path / "out", "not_finite")
    rows = [json.loads(text) for text in (tmp_path / "out" / line["file"]).read_text("utf-8").splitlines()]
    assert {row["sample"] for row in rows} == {4, 5, 6, 7} and line["documents"] > 0


def test_an_overflow_is_recorded_where_the_step_was_applied(corpus: Corpus, tmp_path: Path) -> None:
    """A gradient that is not finite at any scale was no overflow: the next step has the scale of before."""
    settings = config(precision="fp16", loss_scale={"initial": 4.0}, num_steps=6)
    (answer,) = reused_ranks(run_overflowing, 1, settings, corpus, tmp_path, {2: 1, 4: 4})
    assert answer[0] == ""
    assert [(line["step"], line["loss_scale"]) for line in recorded(tmp_path, "overflow")] == [(2, 2.0)]
    assert [(line["step"], line["verdict"]) for line in recorded(tmp_path, "not_finite")] == [(4, "data")]


def run_overflowing(config: RunConfig, corpus: Corpus, out: Path, attempts: dict[int, int]) -> tuple[str, list[str]]:
    """The first attempts at some steps (from 1) give gradients that are not finite."""
    tried: list[int] = []
    original = ParallelModel.step

    def step(model: ParallelModel, *args: Any) -> Tensor:
        losses = original(model, *args)
        at = model.pipeline.phases.step
        tried.append(at)
        if tried.count(at) <= attempts.get(at, 0):
            gradient: Any = next(iter(model.parameters.values())).grad
            gradient.mul_(math.inf)
        return losses

    with mock.patch.object(ParallelModel, "step", step):
        return run(config, corpus, out)


def test_no_more_samples_are_listed_than_is_quickly_done(corpus: Corpus, tmp_path: Path) -> None:
    ((error, _),) = reused_ranks(run_failing_capped, 1, config(num_steps=3), corpus, tmp_path, 3)
    assert error == ""
    (line,) = recorded(tmp_path, "not_finite")
    rows = [json.loads(text) for text in (tmp_path / line["file"]).read_text("utf-8").splitlines()]
    assert {row["sample"] for row in rows} == {4, 5, 6}, "of the samples 4 to 7 of the second step"


def run_failing_capped(config: RunConfig, corpus: Corpus, out: Path, max_samples: int) -> tuple[str, list[str]]:
    with mock.patch.object(incidents, "MAX_SAMPLES", max_samples):
        return run_failing(config, corpus, out, 0, 2, 3)
