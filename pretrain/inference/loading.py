"""A checkpoint opened to be asked: on one process, or over the ranks of any mesh, whatever it was trained on.

    in_ranks(args)                      # `main` of a command: with --nproc this process starts ranks and ends with them
    with opened(args) as model:         # on each rank, or on the one process that there is
        for ... in score(model.model, requests, model.reading, model.device, model.world): ...
        if model.is_first: print(...)

The configuration is the checkpoint's own but for the layout, which begins anew: `--set parallel.tp=2` and the like say
how the ranks share the model; by default they hold a part of each weight (zero 2) and share the questions.

Torch is imported when a model is opened: a command line that asks for --help needs none.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from corpus.engine.config import apply_overrides, parse
from corpus.engine.errors import UsageError
from pretrain.config import RunConfig, to_json
from pretrain.launch import launch, report_on_rank_zero
from tokenizer.model import Tokenizer

if TYPE_CHECKING:
    import torch

    from pretrain.inference.batcher import EvaluationBatcher, TokenLosses
    from pretrain.parallel.base.mesh import World

Value = TypeVar("Value")
SETTABLE = ("parallel", "training.precision")  # what does not change the model


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A model that can be asked, and what the question needs."""

    model: TokenLosses
    config: RunConfig
    tokenizer: Tokenizer
    batcher: EvaluationBatcher
    device: torch.device
    world: World | None  # None: one process alone
    checkpoint: Path

    @property
    def is_first(self) -> bool:
        """Whether this process speaks and writes for all of them."""
        return self.world is None or self.world.rank == 0

    def propagate_errors(self) -> AbstractContextManager[None]:
        """Around what rank 0 does alone, a file that it writes: if it fails, all ranks end with its error."""
        return nullcontext() if self.world is None else self.world.propagate_errors()

    def from_first(self, value: Value) -> Value:
        """What rank 0 has, on all ranks; all of them call it."""
        return value if self.world is None else self.world.gather(value)[0]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """What names a model on the command line, and the processes that hold it."""
    parser.add_argument("--checkpoint", required=True, help="a step-... folder or URL of a run")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--nproc", type=int, default=1, metavar="N", help="processes that share it (default 1)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", help="how: parallel.tp=2; or training.precision=bf16"
    )


def in_ranks(args: argparse.Namespace) -> None:
    """Start `--nproc` processes of this command, and end with their code; return where there is one, or this is one of
    them.

    Raises:
        SystemExit: with the code of the ranks.
        UsageError: fewer than one process is asked for.
    """
    if args.nproc < 1:
        raise UsageError(f"--nproc {args.nproc}: it must be 1 or more")
    if args.nproc > 1 and "RANK" not in os.environ:
        sys.exit(launch([sys.executable, "-m", "pretrain", *sys.argv[1:]], args.nproc))


@contextmanager
def load_checkpoint(args: argparse.Namespace) -> Iterator[LoadedCheckpoint]:
    """The model that `add_model_arguments` names, on every rank that `--nproc`, torchrun or srun started, or on one
    process.

    An error that all ranks have, also one of the block, is told by rank 0 alone.

    Raises:
        UsageError: the ranks cannot share the model as --set says, or it says something else.
        WenhaiError: a file of the checkpoint is missing or altered; the message names it.
        SystemExit: on other ranks than 0, with the error's code.
    """
    from pretrain.checkpoint import TOKENIZER, load_model, load_weights, local_folder
    from pretrain.inference.batcher import EvaluationBatcher
    from pretrain.parallel.base import mesh

    with report_on_rank_zero(), ExitStack() as stack:
        folder = local_folder(args.checkpoint)  # of a URL a copy of each rank's own
        config = _configuration(folder, args.set)
        model: TokenLosses
        world: World | None = None
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            from pretrain.parallel.engine.pipeline import DTYPES

            mesh.layout(config.parallel, 1)
            device = mesh.choose_device(args.device)
            model = load_model(folder)[0].to(device, DTYPES[config.training.precision])
        else:
            from pretrain.parallel.engine import compose

            timeout = config.training.timeout_minutes
            world = stack.enter_context(mesh.start(config.parallel, args.device, timeout))
            built = compose.build(config, world, fill=False)
            load_weights(folder, built, world)
            model, device = built, world.device
        with nullcontext() if world is None else world.propagate_errors():
            tokenizer = Tokenizer(folder / TOKENIZER)
        yield LoadedCheckpoint(
            model, config, tokenizer, EvaluationBatcher.of(config, tokenizer.eod), device, world, folder
        )


def _configuration(folder: Path, overrides: Sequence[str]) -> RunConfig:
    """That of a checkpoint, in the layout that is asked for.

    Raises:
        UsageError: an override is of something else than the layout or the precision, or does not fit the model.
    """
    from pretrain.checkpoint import read_commit, read_saved

    for override in overrides:
        key = override.partition("=")[0].strip()
        if not any(key == name or key.startswith(f"{name}.") for name in SETTABLE):
            raise UsageError(
                f"--set {override}: a checkpoint's model is as it was trained. Set parallel.* or training.precision"
            )
    read_commit(folder)
    saved = read_saved(folder).config
    values = to_json(saved) | {"parallel": {}}
    values["training"]["compile"] = False  # batches are of any length, and each would be compiled
    config = parse(RunConfig, apply_overrides(values, overrides), f"{folder}, as --set changes it")
    if config.parallel.auto:
        raise UsageError("--set parallel=auto: plans training. Name the layout, as in parallel.tp=2")
    precisions = (saved.training.precision, config.training.precision)
    if precisions[0] != precisions[1] and "fp64" in precisions:
        raise UsageError(
            f"--set training.precision={precisions[1]}: the weights are those of {precisions[0]}. Leave it out"
        )
    return config
