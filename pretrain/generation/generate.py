"""Text from a trained model: one token at a time, printed as soon as its characters are whole.

A text starts after an end-of-document token, as every document did in training; the model sees the last
`sequence_length` tokens. Each step recomputes the whole window: a token costs one forward of T tokens instead of one
(T times the arithmetic of a key/value cache), in return no layer needs to know about generation. Draws come from a
CPU generator seeded by `seed`, in float64: the same seed and logits give the same text on any device.

To a model that was trained with prefixes (`data.prefix_lm`) the prompt is the prefix: its tokens see each other both ways,
what is generated sees what lies before it.
"""

from __future__ import annotations

import argparse
import codecs
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.checkpoint import TOKENIZER, load_model, local_folder
from pretrain.micro_batch import MicroBatch
from pretrain.model import GPT
from pretrain.parallel.mesh import choose_device
from pretrain.reading import Reading
from tokenizer.model import Tokenizer


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the model's probabilities."""

    temperature: float = 0.8  # 0 takes the most probable token
    top_k: int = 0  # only the k most probable; 0 for all
    top_p: float = 1.0  # only the fewest most probable whose sum reaches p
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"temperature {self.temperature}: it must be 0 (greedy) or a larger number")
        if self.top_k < 0:
            raise UsageError(f"top_k {self.top_k}: it must be 0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p {self.top_p}: it must be above 0 and at most 1")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed {self.seed}: it must be 0 or more, and below 2**63")


def window(reading: Reading, context: Sequence[int], prefix_length: int) -> MicroBatch:
    """The last tokens of a context, its first `prefix_length` the prefix."""
    first = max(0, len(context) - reading.sequence_length)
    tokens = np.array([context[first:]])
    return reading.micro_batch(tokens, tokens, prefix_lengths_B=np.array([max(0, prefix_length - first)]))


@torch.no_grad()  # not inference_mode: the caller may go on training
def generate(
    model: Callable[..., Tensor],
    prompt: Sequence[int],
    max_tokens: int,
    sampling: Sampling,
    reading: Reading,
    device: torch.device | str = "cpu",
) -> Iterator[int]:
    """The tokens that follow `prompt`, `max_tokens` at most; the end-of-document token ends it and is not given.

    `model` maps what `GPT.forward` takes, of one sample, to logits [1, T, V], or [1, 1, V] of the last place alone.
    """
    generator = torch.Generator().manual_seed(sampling.seed)
    context = [reading.eod, *prompt]
    prefix_length = len(context)
    for _ in range(max_tokens):
        batch = window(reading, context, prefix_length)
        logits = model(*(None if tensor is None else tensor.to(device) for tensor in batch.inputs[:4]))
        token = next_token(logits[0, -1], sampling, generator)
        if token == reading.eod:
            return
        context.append(token)
        yield token


def last_logits(model: GPT, tokens_BT: Tensor, *marks: Tensor | None) -> Tensor:
    """Logits [B, 1, V] of the last place of each sample."""
    rows_N = torch.arange(1, len(tokens_BT) + 1, device=tokens_BT.device) * tokens_BT.shape[1] - 1
    logits: Tensor = model(tokens_BT, *marks, rows_N=rows_N)
    return logits


def next_token(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Draw from logits [V]: first the temperature, then the k most probable, then the most probable up to p.

    A tie at the edge of k or p goes to the smaller token.
    """
    logits, tokens = logits.cpu().double().sort(descending=True, stable=True)
    if not logits[0].isfinite():  # NaN sorts first
        raise WenhaiError("the model's logits are not finite: its training diverged. Choose an earlier checkpoint.")
    if sampling.temperature == 0:
        return int(tokens[0])
    if sampling.top_k:
        logits = logits[: sampling.top_k]
    probabilities = torch.softmax((logits - logits[0]) / sampling.temperature, dim=0)
    before = probabilities.cumsum(0) - probabilities
    probabilities = torch.where(before < sampling.top_p, probabilities, 0.0)
    return int(tokens[torch.multinomial(probabilities, 1, generator=generator)])


def stream_text(tokens: Iterable[int], piece_bytes: Callable[[int], bytes]) -> Iterator[str]:
    """The text of tokens as they come, never half a character: bytes wait until their character is whole.

    Bytes that can become no character are given as U+FFFD, also those left at the end.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        if text := decoder.decode(piece_bytes(token)):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain generate`."""
    parser.add_argument("--checkpoint", required=True, help="a step-... folder or URL of a run")
    parser.add_argument("--prompt", default="", help="the text to continue (default: a new document)")
    parser.add_argument("--max-tokens", type=int, default=200, metavar="N")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 is greedy")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="0: all tokens")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))


def main(args: argparse.Namespace) -> None:
    """Print the prompt and what the model makes of it."""
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    if args.max_tokens < 0:
        raise UsageError(f"--max-tokens {args.max_tokens}: it must be 0 or more")
    prompt = os.fsencode(args.prompt).decode(errors="replace")  # UTF-8, whatever the locale says
    device = choose_device(args.device)
    folder = local_folder(args.checkpoint)
    model, config = load_model(folder)
    tokenizer = Tokenizer(folder / TOKENIZER)
    tokens = generate(
        partial(last_logits, model.to(device)),
        tokenizer.encode(prompt),
        args.max_tokens,
        sampling,
        Reading.of(config, tokenizer.eod),
        device=device,
    )
    for text in chain([prompt], stream_text(tokens, tokenizer.piece_bytes)):
        print(text, end="", flush=True)
    print()
