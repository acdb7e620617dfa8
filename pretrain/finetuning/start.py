"""The beginning of a fine-tuning run: its configuration, and a first checkpoint with the weights of another run.

OUT/examples/                       see `store`
OUT/template.toml                   how prompts are spelled; `python -m pretrain generate` reads it
OUT/finetuning.json                 what it came from
OUT/checkpoints/step-00000000/      the base's weights, an optimizer that has seen nothing
OUT/config.toml                     to be changed as one likes before the first step; written last: nothing trains
                                    without it
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.config import apply_overrides, parse
from corpus.engine.errors import UsageError
from corpus.engine.toml import dump
from pretrain import checkpoint
from pretrain.chat.conversations import Message
from pretrain.chat.templates import Template, render
from pretrain.config import ParallelConfig, RunConfig, read_config, to_json, with_vocab_size
from pretrain.corpora import open_corpora, stream_of
from pretrain.finetuning.store import CONFIG, EXAMPLES, ORIGIN
from pretrain.run.datasets import open_datasets

RATE = 0.1  # of the base's learning rate
WARM_UP = 0.06  # of the steps
MOST_ROWS = 8  # a step
ENOUGH_STEPS = 100  # for which a step has fewer rows, if need be
EVALUATIONS = 4  # over the run, and as many saves
TIMEOUT_MINUTES = 10.0
CHANGEABLE = ("sequence_length", "document_mask")  # of a model whose weights stay what they are


def settings(
    base: RunConfig, template: Template, config: str | None, overrides: Sequence[str], prefix_lm: bool
) -> dict[str, Any]:
    """What the configuration of the run says, before the number of its steps is known.

    The model is the base's, and so are optimizer and precision but for a tenth of the rate and no decay; examples that
    share a row do not see each other, and prompts are prefixes where the base was trained with prefixes, or `prefix_lm`
    asks for it. `config` replaces what it says of all sections but the model's, `overrides` what they name.
    """
    values: dict[str, Any] = {
        "optimizer": to_json(base)["optimizer"]
        | {"learning_rate": base.optimizer.learning_rate * RATE, "weight_decay": 0.0},
        "training": {"micro_batch_size": 1, "precision": base.training.precision},
        "evaluation": {"prompt": render(template, [Message("user", "你好")])},
    }
    if config is not None:
        values = read_config(config)[0]
    data = {"reset_positions": True, "prefix_lm": base.data.prefix_lm}
    if isinstance(given := values.get("data", {}), dict):  # else `parse` says what is wrong
        values["data"] = data | given | ({"prefix_lm": True} if prefix_lm else {})
    values["model"] = to_json(base)["model"] | {"document_mask": True}
    return apply_overrides(values, overrides)


def sequence_length(values: Mapping[str, Any], base: RunConfig) -> int:
    """Of the run.

    Raises:
        UsageError: the settings change more of the model than its weights allow.
    """
    ours, theirs = values["model"], to_json(base)["model"]
    allowed = CHANGEABLE if base.model.positions == "rope" else CHANGEABLE[1:]
    if changed := [key for key in sorted(ours) if ours[key] != theirs.get(key) and key not in allowed]:
        raise UsageError(
            f"model.{changed[0]}: is {ours[changed[0]]} here and {theirs.get(changed[0])} of the checkpoint, whose "
            "weights the "
            f"run begins with. Leave it out; of the model you can change {' and '.join(allowed)}."
        )
    length = ours["sequence_length"]
    if not isinstance(length, int) or length < 1:
        raise UsageError(f"model.sequence_length {length}: it must be a number of tokens, 1 or more")
    return length


def complete(values: Mapping[str, Any], examples: Path, epochs: float, num_ranks: int = 1) -> RunConfig:
    """The configuration of the run: its batch and all that depends on its number of steps, where they are not said.

    Raises:
        UsageError: settings are wrong.
    """
    values = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    training = values.setdefault("training", {})
    provisional = {
        **values,
        "training": {"num_steps": 1, "global_batch_size": training.get("micro_batch_size", 1), **training},
        "checkpoint": {"every_steps": 1, **values.get("checkpoint", {})},
        "evaluation": {"every_steps": 1, **values.get("evaluation", {})},
    }
    provisional["schedule"] = {}
    config = parse(RunConfig, provisional, "the new run")
    (corpus,) = open_corpora(config.data, {examples.name: examples})
    num_packs = stream_of(corpus, config.model.sequence_length, config.training.seed).num_samples
    num_rows = math.ceil(epochs * num_packs)
    rows = training.setdefault("global_batch_size", rows_a_step(num_rows, config, num_ranks))
    num_steps = training.setdefault("num_steps", math.ceil(epochs * num_packs / rows))
    values["schedule"] = {"warmup_steps": math.ceil(num_steps * WARM_UP), **values.get("schedule", {})}
    often = {"every_steps": max(1, -(-num_steps // EVALUATIONS))}
    for name in ("checkpoint", "evaluation"):
        values[name] = often | values.get(name, {})
    values["metrics"] = {"every_steps": max(1, min(10, num_steps // 10)), **values.get("metrics", {})}
    config = parse(RunConfig, values, "the new run")
    if config.checkpoint.url is not None:
        raise UsageError(
            "checkpoint.url: the first checkpoint is written to --out. Leave it out; with --prepare, copy "
            "OUT/checkpoints there "
            "and set it in OUT/config.toml before the first step."
        )
    return config


def rows_a_step(num_rows: int, config: RunConfig, num_ranks: int) -> int:
    """Of a run of `num_rows`: 8, or where these are few 4, 2 or 1, so that it has enough steps; and what the ranks
    divide."""
    rows = MOST_ROWS
    while rows > 1 and num_rows < ENOUGH_STEPS * rows:
        rows //= 2
    shared = config.parallel.tp * config.parallel.pp
    unit = config.training.micro_batch_size * max(1, num_ranks // shared)
    return -(-rows // unit) * unit


def write_start(out: Path, base: Path, config: RunConfig, origin: Mapping[str, Any]) -> None:
    """Write the configuration and the first checkpoint of the run `out`; its examples are there.

    Args:
        base: A checkpoint, here.
        origin: For `finetuning.json`.

    Raises:
        WenhaiError: the checkpoint is damaged, or of another tokenizer than the examples.
    """
    from pretrain.hf.load import save_first
    from pretrain.parallel.base import mesh

    if checkpoint.newest(out) is None:  # else a start died right before its end
        with mesh.start(ParallelConfig(), "cpu", TIMEOUT_MINUTES) as world:
            corpora = open_datasets(config, out / EXAMPLES, None)
            run_config = with_vocab_size(config, corpora.tokenizer.vocab_size)
            weights, _ = checkpoint.load_model(base)
            durable.write_json(out / ORIGIN, origin)
            save_first(out, weights, run_config, corpora, world)
    durable.write_bytes(out / CONFIG, f"{dump(to_json(config))}\n".encode())
