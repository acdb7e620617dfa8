"""That transformers computes what our model computes: logits of real text in windows of several lengths, greedy text.

Both compute in fp32 on the CPU. They add in other orders (fused q, k and v here, `Conv1D` there, another base of the
rotary frequencies' power), so logits differ by rounding: at most by `BOUND` of a window's largest logit, or the folder
is refused. Wrong rows or heads are beyond it by orders of magnitude; the other GELU or a norm's other epsilon by
little. Under rotary positions windows are short: the two powers differ by rounding, and the angle of a far place by as
much more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.model import GPT
from tokenizer.model import Tokenizer

BOUND = 2e-5
LENGTHS = (1, 2, 17, 128)  # and the longest that is compared
MAX_LENGTH = 256  # of windows, unless positions are learned: then all are compared
GREEDY_TOKENS = 16
NEAR_TIE = 2 * BOUND  # two logits this close may change places by rounding


@dataclass(frozen=True)
class Agreement:
    """What was compared, and how far apart it was."""

    num_windows: int
    num_tokens: int
    difference: float  # the largest of two logits, as a part of the largest logit of its window
    absolute: float  # the largest of two logits


class ProofError(WenhaiError):
    """transformers computes something else than our model. Exit code 1."""


def require() -> None:
    """Raises `UsageError` where transformers is missing."""
    if find_spec("transformers") is None:
        raise UsageError("transformers is not installed. Run: pip install 'wenhai[hf]'")


def trial_texts() -> list[str]:
    """Passages of classical and modern Chinese, English and code that come with the package."""
    return resources.files("pretrain.hf").joinpath("trial_texts.txt").read_text("utf-8").splitlines()


def windows(model: GPT, tokenizer: Tokenizer) -> Iterator[Tensor]:
    """Token windows [1, length] of the trial texts, each text ended by its symbol; and one of ids from all of the
    vocabulary."""
    longest = model.config.sequence_length
    if model.config.positions != "learned":
        longest = min(longest, MAX_LENGTH)
    text = [id for passage in trial_texts() for id in (*tokenizer.encode(passage), tokenizer.eod)]
    stream = chain.from_iterable(repeat(text))
    for length in sorted({*(length for length in LENGTHS if length < longest), longest}):
        yield torch.tensor([[next(stream) for _ in range(length)]])
    yield torch.linspace(0, tokenizer.vocab_size - 1, longest).long()[None]


@torch.no_grad()
def compare(ours: GPT, theirs: Any, tokenizer: Tokenizer) -> Agreement:
    """Compare the logits of all windows.

    Raises:
        ProofError: they are further apart than the bound; it says where.
    """
    differences, absolute, num_tokens = [0.0], [0.0], 0
    for window in windows(ours, tokenizer):
        expected = ours(window)[..., : tokenizer.vocab_size]
        found = theirs(input_ids=window).logits[..., : tokenizer.vocab_size].float()
        absolute.append(float((found - expected).abs().max()))
        differences.append(absolute[-1] / max(float(expected.abs().max()), torch.finfo(torch.float32).tiny))
        num_tokens += window.shape[1]
        if not differences[-1] <= BOUND:  # also where one is not a number
            raise ProofError(
                f"logits differ by {differences[-1]:.1e} of the largest in a window of {window.shape[1]} tokens, and "
                f"rounding explains {BOUND:.0e}. Nothing was written; please report this as a bug, with the model's "
                "configuration."
            )
    return Agreement(len(differences) - 1, num_tokens, max(differences), max(absolute))


@torch.no_grad()
def compare_greedy(ours: GPT, theirs: Any, tokenizer: Tokenizer, backend: Any) -> int:
    """Continue the first passage greedily with `generate` of transformers and its tokenizer; returns how many tokens
    agree.

    Where the two best logits of ours are a rounding apart, both choices are right and the comparison ends.

    Raises:
        ProofError: another token was generated.
    """
    count = min(GREEDY_TOKENS, ours.config.sequence_length // 2)
    if not count:
        return 0
    ids = [tokenizer.eod, *backend(trial_texts()[0], add_special_tokens=False)["input_ids"]]
    given = torch.tensor([ids[: ours.config.sequence_length - count]])
    found = theirs.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=count, do_sample=False)
    context = given
    for place, token in enumerate(found[0, given.shape[1] :].tolist()):
        logits = ours(context)[0, -1]
        best, second = logits.topk(2)[0].tolist()
        if best - second <= NEAR_TIE * float(logits[: tokenizer.vocab_size].abs().max()):
            return place
        if int(logits.argmax()) != token:
            raise ProofError(
                f"transformers generates token {token} where our model has {int(logits.argmax())}, {place} tokens "
                "after the "
                "prompt. Nothing was written; please report this as a bug."
            )
        context = torch.cat((context, torch.tensor([[token]])), dim=1)
    return context.shape[1] - given.shape[1]


def in_memory(config: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The model of transformers with these tensors, which it shares."""
    import transformers

    described = transformers.AutoConfig.for_model(**config)
    kind = getattr(transformers, config["architectures"][0])
    with _quietly():
        return kind.from_pretrained(None, config=described, state_dict=tensors, dtype=torch.float32).eval()


def from_folder(folder: Path) -> Any:
    """The model as its users open it, in fp32; weights from safetensors files alone."""
    from transformers import AutoModelForCausalLM

    with _quietly():
        options = {
            "dtype": torch.float32,
            "local_files_only": True,
            "use_safetensors": True,
            "trust_remote_code": False,
        }
        return AutoModelForCausalLM.from_pretrained(str(folder), **options).eval()


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bars and advice of transformers."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
