"""`python -m pretrain import`: a Llama or GPT-2 folder of Hugging Face as the first checkpoint of a new run.

The run is at step 0 with an optimizer that has seen nothing; `OUT/config.toml` holds its configuration, to be changed
as one likes before the first step, and `python -m pretrain train --config OUT/config.toml --data D --out OUT` goes on
from there. Weights are read from safetensors files, one tensor at a time. Nothing of the folder is run.

What the text was encoded with has to be the model's own vocabulary: `tokenizer.model` of the folder, or `--tokenizer`.
No check can tell whether it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from corpus.engine import durable
from corpus.engine.config import apply_overrides, parse
from corpus.engine.errors import UsageError
from corpus.engine.toml import dump
from pretrain import checkpoint
from pretrain.checkpoint import TOKENIZER
from pretrain.config import ParallelConfig, RunConfig, load_config, padded_vocab_size, to_json, with_vocab_size
from pretrain.hf import proof
from pretrain.hf.export import weights_of
from pretrain.hf.files import Weights
from pretrain.hf.layouts import LAYOUTS, Layout
from pretrain.hf.proof import Agreement
from pretrain.model import GPT
from pretrain.parallel.base import mesh
from pretrain.run.datasets import Corpora, open_datasets
from pretrain.training.step import new_run
from tokenizer.model import Tokenizer

DEFAULTS: dict[str, Any] = {  # of a run that goes on with a finished model; --config or --set say otherwise
    "optimizer": {"learning_rate": 1e-4},
    "schedule": {"kind": "cosine", "warmup_steps": 100},
    "training": {"num_steps": 1000, "global_batch_size": 32, "micro_batch_size": 1},
    "checkpoint": {"every_steps": 200},
    "evaluation": {"every_steps": 200},
}
BUFFERS = re.compile(r".*\.(rotary_emb\.inv_freq|attn\.(masked_)?bias)")  # computed, and saved by older versions
TIMEOUT_MINUTES = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain import`."""
    parser.add_argument("--model", type=Path, required=True, help="the folder with config.json and safetensors files")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the new run")
    parser.add_argument("--data", type=Path, help="token shards, encoded with the model's vocabulary")
    parser.add_argument("--tokenizer", type=Path, help="default: tokenizer.model of the folder")
    parser.add_argument("--config", help="of the run: all but its [model] (default: a short run at a low rate)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one setting of the run")


def main(args: argparse.Namespace) -> None:
    """Write the checkpoint and the configuration, and say how the run goes on."""
    proof.require()
    agreement = import_model(args.model, args.out, args.data, args.tokenizer, args.config, args.set)
    print(
        f"Logits differ by at most {agreement.absolute:.1e} ({agreement.difference:.1e} of the largest; "
        f"{proof.BOUND:.0e} "
        f"allowed), in {agreement.num_windows} windows, {agreement.num_tokens:,} tokens. Look at "
        f"{args.out / 'config.toml'}, then:",
        file=sys.stderr,
    )
    words = ["python -m pretrain train", f"--config {args.out / 'config.toml'}", f"--out {args.out}"]
    words += [f"--data {args.data}"] if args.data else []
    words += [f"--tokenizer {args.tokenizer or args.model / TOKENIZER}"]
    print(" ".join(words))


def import_model(
    folder: Path, out: Path, data: Path | None, tokenizer_path: Path | None, base: str | None, overrides: list[str]
) -> Agreement:
    """Write the first checkpoint of the run `out`.

    Raises:
        UsageError: the model is one that ours cannot express, or `out` is a run already.
        WenhaiError: files are missing or damaged, the shards are of another tokenizer, or logits differ.
    """
    if checkpoint.newest(out) is not None or (out / "metrics.jsonl").exists():
        raise UsageError(f"{out}: holds a run already. Name another folder.")
    theirs = durable.read_json(folder / "config.json")
    layout = layout_of(theirs)
    weights = Weights(folder)
    tokenizer = open_tokenizer(folder, tokenizer_path)
    num_rows = theirs["vocab_size"]
    if tokenizer.vocab_size > num_rows:
        raise UsageError(
            f"{tokenizer.path}: has {tokenizer.vocab_size:,} entries, the model {num_rows:,}. Name its own with "
            "--tokenizer."
        )
    config = new_config(layout, theirs, base, overrides)
    with mesh.start(ParallelConfig(), "cpu", TIMEOUT_MINUTES) as world:
        corpora = open_datasets(config, data, tokenizer.path)
        run_config = with_vocab_size(config, tokenizer.vocab_size)
        ours = read_model(layout, weights, run_config, num_rows)
        agreement = proof.compare(ours, proof.from_folder(folder), tokenizer)

        with durable.RunLock(out):
            durable.write_bytes(out / "config.toml", f"{dump(to_json(config))}\n".encode())
            save_first(out, ours, run_config, corpora, world)
    return agreement


def layout_of(theirs: Any) -> Layout:
    """The layout that a config.json is of.

    Raises:
        UsageError: none of ours, or its weights are quantised.
    """
    kind = theirs.get("model_type") if isinstance(theirs, dict) else None
    layout = next((layout for layout in LAYOUTS if layout.name == kind), None)
    if layout is None:
        known = ", ".join(layout.name for layout in LAYOUTS)
        raise UsageError(
            f"config.json: the architecture is {kind!r}, and {known} can be imported. Choose such a model."
        )
    if theirs.get("quantization_config"):
        raise UsageError("config.json: the weights are quantised. Get the model in float32, bfloat16 or float16.")
    return layout


def open_tokenizer(folder: Path, path: Path | None) -> Tokenizer:
    """The SentencePiece model of a folder, or the one that is named.

    Raises:
        WenhaiError: there is none, or it is not one that encodes all text exactly.
    """
    if path is None and not (folder / TOKENIZER).is_file():
        raise UsageError(
            f"{folder}: has no {TOKENIZER}, the SentencePiece file that token shards are made with; a tokenizer.json "
            "alone does not do. Name the file with --tokenizer."
        )
    return Tokenizer(path or folder / TOKENIZER)


def new_config(layout: Layout, theirs: Mapping[str, Any], base: str | None, overrides: list[str]) -> RunConfig:
    """The configuration of the run: the model of a config.json, the rest of `base`, then `overrides`.

    Raises:
        UsageError: config.json lacks something or describes what ours cannot be; or settings are wrong.
    """
    try:
        model = layout.read(theirs) | {"padded_vocab_size": padded_vocab_size(theirs["vocab_size"])}
    except KeyError as error:
        raise UsageError(
            f"config.json: has no {error.args[0]}, which every {layout.name} has. Get it again."
        ) from error
    values = {**(DEFAULTS if base is None else to_json(load_config(base))), "model": model}
    config = parse(RunConfig, apply_overrides(values, overrides), "the new run", overrides)
    if config.checkpoint.url is not None:
        raise UsageError(
            "checkpoint.url: the first checkpoint is written to --out. Leave it out; set it in config.toml."
        )
    return config


def read_model(layout: Layout, weights: Weights, config: RunConfig, num_rows: int) -> GPT:
    """Our model with their weights, in fp32.

    Raises:
        UsageError: a tensor is missing, of another shape, or there are others.
    """
    model = config.model
    names = {entry: _stored(entry, weights) for one in layout.entries(model, num_rows) for entry in one.theirs}
    if missing := sorted(name for name, stored in names.items() if stored not in weights.files):
        raise UsageError(f"{weights.folder}: has no {missing[0]}, nor {len(missing) - 1} others. Get the folder again.")
    others = set(weights.files) - set(names.values())
    if model.tied and (stored := _stored("lm_head.weight", weights)) in others:
        if not torch.equal(weights(stored), weights(names[next(iter(names))])):
            raise UsageError("lm_head.weight: is not the embedding, and config.json says it is. The folder is damaged.")
        others.discard(stored)
    if unknown := sorted(name for name in others if not BUFFERS.fullmatch(name)):
        raise UsageError(
            f"{weights.folder}: holds {unknown[0]} ({len(unknown)} such tensors), which a {layout.name} of this "
            "config.json has not. It is a variant that ours cannot express."
        )
    with torch.device("meta"):
        ours = GPT(model)
    ours.to_empty(device="cpu")
    ours.tie()
    parameters = weights_of(ours)
    for name, tensor in layout.to_ours(lambda name: weights(names[name]), model, num_rows):
        parameters[name].copy_(tensor)
    return ours.eval()


def _stored(name: str, weights: Weights) -> str:
    """What a file calls a tensor: GPT-2's own files leave `transformer.` out."""
    return name if name in weights.files else name.removeprefix("transformer.")


@torch.no_grad()
def save_first(out: Path, ours: GPT, config: RunConfig, corpora: Corpora, world: mesh.World) -> None:
    """Write the checkpoint at step 0 of a run of `config` that begins with these weights; on one rank."""
    alone = config.training.model_copy(update={"device": "cpu", "compile": False})
    here = config.model_copy(update={"parallel": ParallelConfig(), "training": alone})
    run = new_run(here, world, corpora.loader, corpora.order)
    for name, weight in weights_of(ours).items():
        parameter = run.model.parameters[name]
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        local.copy_(weight)
    checkpoint.save(out, run.state, run.model, run.optimizer, config, corpora.identity, world)
