"""Training on CPU beside what one would write without us, in ratios of one run.

Single process: `train_step` beside a plain nanoGPT-style loop (`plain_gpt`), beside the same model of ours in a bare
loop, and with FSDP2 wrapped around it, which a world of one leaves out. All take their turn in one process, with the
allocator set as our runs set it, which the plain loop would not be. Two ranks: each axis alone beside one rank, and
torch's own pipeline schedules and `parallelize_module`.  Random tokens, fp32, one
thread a rank.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

from numpy.typing import NDArray
from torch import nn

from pretrain.config import RunConfig
from pretrain.model.micro_batch import read_micro_batches
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World
from pretrain.parallel.engine import fsdp
from pretrain.training.step import Run, train_step
from tools.bench.pretrain import plain_gpt, two_ranks
from tools.bench.pretrain.random_run import configuration, on_ranks, random_run, random_tokens
from tools.bench.timing import take_turns

ROUNDS = 10  # of each contender
SHAPES: dict[str, dict[str, Any]] = {
    "3 layers x 192, the demo's": {
        "model": {"num_layers": 3, "hidden_size": 192, "num_heads": 6, "vocab_size": 8000, "padded_vocab_size": 8192},
        "training": {"global_batch_size": 4, "micro_batch_size": 2},
    },
    "6 layers x 320": {
        "model": {"num_layers": 6, "hidden_size": 320, "num_heads": 5, "vocab_size": 4096, "padded_vocab_size": 4096},
        "training": {"global_batch_size": 4, "micro_batch_size": 4},
    },
}

Step = Callable[[], object]


def run(arguments: Namespace) -> None:
    """Print the tables."""
    for name, sections in SHAPES.items():
        tell_single(name, on_ranks(one_process, 1, sections)[0])
    two_ranks.run()


def tell_single(name: str, rates: Mapping[str, float]) -> None:
    """Tokens for each CPU second, and ratios to the first two rows."""
    plain, bare = rates["a plain loop"], rates["our model, in a bare loop"]
    print(f"one process, {name:<34}{'tokens/CPU s':>12}{'to plain':>10}{'to bare':>9}")
    for what, rate in rates.items():
        print(f"{what:<46}{rate:>13,.0f}{f'x {rate / plain:.3f}':>10}{f'x {rate / bare:.3f}':>9}", flush=True)


def one_process(sections: Mapping[str, Mapping[str, Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Tokens for each CPU second of every contender."""
    config = configuration(sections)
    with mesh.start(config.parallel, "cpu", timeout_minutes=1.0) as world:
        tokens = random_tokens(config)
        run = random_run(config, world, tokens)
        contenders: dict[str, Step] = {
            "a plain loop": plain(config, tokens).step,
            "our model, in a bare loop": partial(bare_step, random_run(config, world, tokens)),
            "train_step": partial(train_step, run),
            "train_step, wrapped by FSDP2": partial(train_step, wrap_single_rank(config, world, tokens)),
        }
        of_ours, of_peer = run.parameters.values(), plain(config, tokens).model.parameters()
        assert sum(p.numel() for p in of_ours) == sum(p.numel() for p in of_peer)
        tokens_per_step = config.training.global_batch_size * config.model.sequence_length
        return {name: tokens_per_step / seconds for name, seconds in take_turns(contenders, rounds).items()}


def wrap_single_rank(config: RunConfig, world: World, tokens: NDArray[Any]) -> Run:
    """A run sharded over a single rank as if there were more."""

    unwrapped = fsdp.shard

    def shard(*arguments: Any, **_: Any) -> None:
        unwrapped(*arguments, always=True)  # type: ignore[misc]

    with patch.object(fsdp, "shard", shard):
        return random_run(config, world, tokens)


def bare_step(run: Run) -> float:
    """A step of our model without the pipeline, the checks over ranks and our clipping; the batches are the
    loader's."""
    training = run.config.training
    (model,) = run.model.parts.values()
    batches = list(
        read_micro_batches(run.loader, run.state.num_samples, training.global_batch_size, run.config, run.world)
    )
    num_tokens = sum(batch.num_targets for batch in batches)
    total = 0.0
    for batch in batches:
        loss = model.cross_entropy_sum(model(batch.tokens), batch.targets) / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    nn.utils.clip_grad_norm_(model.parameters(), training.max_grad_norm)
    run.optimizer.step()
    run.optimizer.zero_grad()
    run.state.num_samples += training.global_batch_size
    return total


def plain(config: RunConfig, tokens: NDArray[Any]) -> plain_gpt.PlainRun:
    """The peer on the same tokens."""
    return plain_gpt.PlainRun(plain_gpt.PlainGPT(config.model), config, tokens)
