"""The beginning of a fine-tuning run: its configuration, and a first checkpoint with the weights of another run.

OUT/examples/                       see `store`
OUT/template.toml                   how prompts are spelled; `python -m pretrain generate` reads it
OUT/config.toml                     to be changed as one likes before the first step
OUT/finetuning.json                 what it came from
OUT/checkpoints/step-00000000/      the base's weights, an optimizer that has seen nothing: written last
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.config import apply_overrides, parse
from corpus.engine.errors import UsageError
from pretrain import checkpoint
from pretrain.config import ParallelConfig, RunConfig, read_config, to_json, with_vocab_size
from pretrain.corpora import open_corpora, open_run, stream_of
from pretrain.finetuning.conversations import Message
from pretrain.finetuning.store import CONFIG, EXAMPLES, ORIGIN
from pretrain.finetuning.templates import Template, render
from pretrain.toml import dump

RATE = 0.1  # of the base's learning rate
WARM_UP = 0.06  # of the steps
EVALUATIONS = 4  # over the run, and as many saves
TIMEOUT_MINUTES = 10.0
CHANGEABLE = ("sequence_length", "document_mask")  # of a model whose weights stay what they are


def settings(
    base: RunConfig, template: Template, config: str | None, overrides: Sequence[str], prefix_lm: bool
) -> dict[str, Any]:
    """What the configuration of the run says, before the number of its steps is known.

    The model is the base's, and so are optimizer and precision but for a tenth of the rate and no decay; examples that share a
    row do not see each other. `config` replaces all sections but the model's, `overrides` what they name.
    """
    values: dict[str, Any] = {
        "data": {"reset_positions": True, "prefix_lm": prefix_lm},
        "optimizer": to_json(base)["optimizer"]
        | {"learning_rate": base.optimizer.learning_rate * RATE, "weight_decay": 0.0},
        "training": {"global_batch_size": 8, "micro_batch_size": 1, "precision": base.training.precision},
        "evaluation": {"prompt": render(template, [Message("user", "你好")])},
    }
    if config is not None:
        values = read_config(config)[0]
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
            f"model.{changed[0]}: is {ours[changed[0]]} here and {theirs.get(changed[0])} of the checkpoint, whose weights the "
            f"run begins with. Leave it out; of the model you can change {' and '.join(allowed)}."
        )
    length = ours["sequence_length"]
    if not isinstance(length, int) or length < 1:
        raise UsageError(f"model.sequence_length {length}: it must be a number of tokens, 1 or more")
    return length


def complete(values: Mapping[str, Any], examples: Path, epochs: float) -> RunConfig:
    """The configuration of the run; what depends on its number of steps follows from `epochs`, where it is not said.

    Raises:
        UsageError: settings are wrong.
    """
    values = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    training = values.setdefault("training", {})
    provisional = {
        **values,
        "training": {"num_steps": 1, **training},
        "checkpoint": {"every_steps": 1, **values.get("checkpoint", {})},
        "evaluation": {"every_steps": 1, **values.get("evaluation", {})},
    }
    provisional["schedule"] = {}
    config = parse(RunConfig, provisional, "the new run")
    (corpus,) = open_corpora(config.data, {examples.name: examples})
    num_packs = stream_of(corpus, config.model.sequence_length, config.training.seed).num_samples
    num_steps = training.setdefault("num_steps", math.ceil(epochs * num_packs / config.training.global_batch_size))
    values["schedule"] = {"warmup_steps": math.ceil(num_steps * WARM_UP), **values.get("schedule", {})}
    often = {"every_steps": max(1, -(-num_steps // EVALUATIONS))}
    for name in ("checkpoint", "evaluation"):
        values[name] = often | values.get(name, {})
    values["metrics"] = {"every_steps": max(1, min(10, num_steps // 10)), **values.get("metrics", {})}
    config = parse(RunConfig, values, "the new run")
    if config.checkpoint.url is not None:
        raise UsageError(
            "checkpoint.url: the first checkpoint is written to --out. Leave it out; set it in config.toml."
        )
    return config


def write_start(out: Path, base: Path, config: RunConfig, origin: Mapping[str, Any]) -> None:
    """Write the configuration and the first checkpoint of the run `out`; its examples are there.

    Args:
        base: A checkpoint, here.
        origin: For `finetuning.json`.

    Raises:
        WenhaiError: the checkpoint is damaged, or of another tokenizer than the examples.
    """
    from pretrain.hf.load import fill
    from pretrain.parallel import mesh
    from pretrain.step import new_run

    with mesh.start(ParallelConfig(), "cpu", TIMEOUT_MINUTES) as world:
        corpora = open_run(config, out / EXAMPLES, None)
        run_config = with_vocab_size(config, corpora.tokenizer.vocab_size)
        weights, _ = checkpoint.load_model(base)
        alone = run_config.training.model_copy(update={"device": "cpu", "compile": False})
        here = run_config.model_copy(update={"parallel": ParallelConfig(), "training": alone})
        run = new_run(here, world, corpora.loader, corpora.order)
        fill(run.model, weights)
        del weights
        durable.write_bytes(out / CONFIG, f"{dump(to_json(config))}\n".encode())
        durable.write_json(out / ORIGIN, origin)
        checkpoint.save(out, run.state, run.model, run.optimizer, run_config, corpora.identity, world)
