"""Text from a model: our engine beside `generate` of transformers, with the same weights, and what a long text costs.

Both continue the same prompts greedily, in fp32, on one core, in turns; the model of transformers is the export's, made
in memory. An end of document ends no text here: the symbol is a token that is not generated. Models have random
weights, but for the one of `--checkpoint`. The second table is our engine alone: one text, and the time of all of its
tokens so far.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from pretrain.checkpoint import load_model
from pretrain.config import ModelConfig, load_config
from pretrain.generation.generate import Settings, generate, in_order
from pretrain.generation.kv_cache import KVCachedModel
from pretrain.generation.sampling import Sampling
from pretrain.hf import proof
from pretrain.hf.export import hf_config, weights_of
from pretrain.hf.layouts import choose
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.model import GPT
from pretrain.parallel.base.mesh import keep_freed_memory
from pretrain.parallel.base.params import init_parameters
from tools.bench.timing import take_turns

PROMPT_TOKENS = 32
NEW_TOKENS = 64
BATCH_SIZES = (1, 4, 16)
ROUNDS = 3
LENGTHS = (64, 128, 256, 512, 1024, 2048)
GREEDY = Sampling(temperature=0)
Tokens = list[list[int]]


def run(arguments: Namespace) -> None:
    """Print both tables."""
    proof.require()
    keep_freed_memory()
    for name, model in models(arguments.checkpoint):
        compare(name, model)
    print()
    demo = load_config("demo").model.model_copy(update={"vocab_size": 8000})
    for length in (256, 4096):
        lengthen(f"demo's shape, window of {length}", new_model(demo.model_copy(update={"sequence_length": length})))


def models(checkpoint: Path | None) -> Iterator[tuple[str, GPT]]:
    """What is timed, by name."""
    if checkpoint is not None:
        yield f"{checkpoint.parent.parent.name}/{checkpoint.name}", load_model(checkpoint)[0]
    demo, gpt2 = (load_config(name).model for name in ("demo", "gpt2-124m"))
    yield "demo's shape, 3 M", new_model(demo.model_copy(update={"vocab_size": 8000}))
    yield "GPT-2, 124 M", new_model(gpt2.model_copy(update={"vocab_size": 50257}))
    llama = {"norm": "rmsnorm", "activation": "swiglu", "positions": "rope", "bias": False, "num_kv_heads": 4}
    yield "the same as a Llama, 4 kv heads", new_model(gpt2.model_copy(update={"vocab_size": 50257, **llama}))


def new_model(config: ModelConfig) -> GPT:
    """With random weights, of which the output's are wide enough for one token to stand out."""
    with torch.device("meta"):
        model = GPT(config)
    model.to_empty(device="cpu")
    model.tie()
    init_parameters(dict(model.named_parameters()), config, seed=1)
    return model.eval()


def compare(name: str, ours: GPT) -> None:
    """A line for each batch size."""
    config = ours.config
    layout = choose(config, None)
    vocabulary = config.vocab_size or config.padded_vocab_size
    symbols: Any = SimpleNamespace(vocab_size=vocabulary, eod=0)
    theirs = proof.in_memory(hf_config(layout, config, symbols, "float32"), layout.to_theirs(weights_of(ours), config))
    theirs.generation_config.eos_token_id = None
    for batch_size in BATCH_SIZES:
        prompts = torch.randint(
            1, vocabulary, (batch_size, PROMPT_TOKENS), generator=torch.Generator().manual_seed(batch_size)
        ).tolist()
        eod = next(
            eod for eod in range(vocabulary) if not any(eod in row for row in of_transformers(theirs, prompts, eod))
        )

        def of_ours(prompts: Tokens = prompts, eod: int = eod, size: int = batch_size) -> Tokens:
            batcher = EvaluationBatcher(config.sequence_length, eod)
            settings = Settings(GREEDY, NEW_TOKENS, batch_size=size)
            pieces = generate(KVCachedModel(ours, batcher), prompts, settings, batcher, lambda _: b"")
            return [text.generated for text, _ in in_order(pieces, 1)]

        def of_theirs(prompts: Tokens = prompts, eod: int = eod) -> Tokens:
            return of_transformers(theirs, prompts, eod)

        seconds = take_turns({"ours": of_ours, "theirs": of_theirs}, ROUNDS)
        mine, other = (batch_size * NEW_TOKENS / each for each in seconds.values())
        equal = sum(a == b for a, b in zip(of_ours(), of_theirs(), strict=True))
        print(
            f"{name:<34} batch {batch_size:>2} {mine:>9,.1f} tokens/s, transformers {other:>9,.1f}: x "
            f"{mine / other:.2f}   "
            f"{equal} of {batch_size} texts equal",
            flush=True,
        )


def of_transformers(model: Any, prompts: Tokens, eod: int) -> Tokens:
    """What transformers generates after each prompt, which begins with `eod`."""
    given = torch.tensor([[eod, *prompt] for prompt in prompts])
    found = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=eod
    )
    tokens: Tokens = found[:, given.shape[1] :].tolist()
    return tokens


def lengthen(name: str, model: GPT) -> None:
    """A line with the time a token of one text, at several lengths."""
    batcher = EvaluationBatcher(
        model.config.sequence_length, model.config.padded_vocab_size - 1
    )  # padding: no logit to win with
    settings = Settings(GREEDY, max(LENGTHS))
    start = time.perf_counter()
    marks = []
    for number, _ in enumerate(generate(KVCachedModel(model, batcher), [[1]], settings, batcher, lambda _: b"."), 1):
        if number in LENGTHS:
            marks.append(f"{number:,}: {1e3 * (time.perf_counter() - start) / number:.2f}")
    print(f"{name}: milliseconds a token of {', '.join(marks)}", flush=True)
