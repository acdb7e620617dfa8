"""How many items a second are scored: all labels of an item behind one context, beside a row for each label.

A row for each label is how lm-evaluation-harness asks, so that the context is computed once for each. Both ways are ours, in
batches by length, with logits of scored tokens alone; the harness's own costs lie on top of the second. Tokens are drawn at
random: what they say changes no time.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from corpus.engine.cli import add_examples
from pretrain.evaluation.opened import opened
from pretrain.evaluation.scoring import Continuation, Request, score
from pretrain.reading import Reading, TokenLosses
from tools.bench.timing import cpu_seconds, one_core

EXAMPLES = "python -m tools.bench.scoring build/demo/pretrain/checkpoints/step-00001200"
LABEL_TOKENS = (1, 5)  # of a label: from 1 to 4
SEED = 0


class Shape(NamedTuple):
    """What a task looks like to a model."""

    name: str
    num_labels: int
    context: int  # tokens
    num_items: int


SHAPES = (Shape("15 labels, short contexts", 15, 50, 64), Shape("119 labels, long contexts", 119, 200, 8))


def run(checkpoint: Path) -> None:
    """Print a row for each shape of a task."""
    arguments = argparse.Namespace(checkpoint=str(checkpoint), device="cpu", nproc=1, set=[])
    with opened(arguments) as found, one_core():
        print(f"{checkpoint}: items a CPU second, one core")
        print(f"{'':<34}{'shared context':>16}{'a row each':>12}{'ratio':>8}")
        for shape in SHAPES:
            requests = drawn(shape, found.tokenizer.vocab_size)
            shared, apart = (
                shape.num_items / cpu_seconds(lambda asked=asked: ask(found.model, asked, found.reading))  # type: ignore[misc]
                for asked in (requests, separate(requests))
            )
            print(f"{shape.name:<34}{shared:>16,.2f}{apart:>12,.2f}{shared / apart:>8.2f}", flush=True)


def drawn(shape: Shape, vocab_size: int) -> list[Request]:
    """The items of a task; all have the same labels."""
    random = np.random.default_rng(SEED)
    labels = [
        Continuation(random.integers(0, vocab_size, random.integers(*LABEL_TOKENS)).tolist())
        for _ in range(shape.num_labels)
    ]
    sizes = random.integers(shape.context // 2, shape.context + 1, shape.num_items)
    return [Request(random.integers(0, vocab_size, size).tolist(), labels) for size in sizes]


def separate(requests: list[Request]) -> list[Request]:
    """The same questions, each with a context of its own."""
    return [Request(context, [each]) for context, continuations in requests for each in continuations]


def ask(model: TokenLosses, requests: list[Request], reading: Reading) -> float:
    """The sum of all log-likelihoods."""
    answers = score(model, requests, reading, "cpu")
    return sum(found.log_likelihood for _, scores in answers for found in scores)


def main() -> None:
    """Parse, and keep to one core."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.scoring", description=__doc__.split("\n")[0])
    add_examples(parser, EXAMPLES)
    parser.add_argument("checkpoint", type=Path, help="a step-... folder of a run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run(arguments.checkpoint)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
