"""`python -m pretrain export`: a checkpoint as the folder of a Llama or a GPT-2 that transformers loads, proven equal.

Twice: the model of transformers with the converted weights before anything is written, and the folder as its users will
open it (`AutoModelForCausalLM`, `AutoTokenizer`) before it gets its name. Weights of a narrower `--dtype` are rounded
first, and both models compute with the rounded ones, so equality is as strict for them.

Memory: the model in fp32 once while it is converted (transformers shares our tensors, but for q, k and v), twice when
the folder is opened again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from pretrain.chat.templates import Template, load_template, template_beside
from pretrain.checkpoint import TOKENIZER, load_model, local_folder, read_saved, read_state
from pretrain.checkpoint.records import Saved
from pretrain.config import ModelConfig, RunConfig
from pretrain.hf import proof
from pretrain.hf.card import held_out_bits, render_card
from pretrain.hf.files import DTYPES, write_weights
from pretrain.hf.layouts import LAYOUTS, Layout, choose
from pretrain.hf.proof import Agreement
from pretrain.hf.serving import check_beginning, check_chat, write_serving_files
from pretrain.model import GPT
from pretrain.training.state import State
from tokenizer.export.folder import new_folder, prove_texts, write_files
from tokenizer.model import Tokenizer


@dataclass(frozen=True)
class Exported:
    """What was written, and how equal it is."""

    num_bytes: int
    in_memory: Agreement
    reopened: Agreement
    num_greedy: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain export`."""
    parser.add_argument("--checkpoint", required=True, help="a step-... folder or URL of a run")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    names = [layout.name for layout in LAYOUTS]
    parser.add_argument("--format", choices=names, help="default: the one that can hold the model")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32", help="of the weights (default: float32)")
    parser.add_argument(
        "--template",
        metavar="NAME|FILE.toml",
        help="of `finetune`, which becomes the chat template (default: that of the checkpoint's run, where it is here)",
    )


def main(args: argparse.Namespace) -> None:
    """Write the folder, and say how equal it is."""
    proof.require()
    checkpoint = local_folder(args.checkpoint)
    saved = read_saved(checkpoint)
    layout = choose(saved.config.model, args.format)  # before the weights are read
    name = args.template or template_beside(checkpoint)
    template = load_template(name) if name else None
    done = export(checkpoint, saved, layout, args.out, args.dtype, template)
    print(
        f"{layout.architecture}, {args.dtype}, {done.num_bytes / 1e6:,.1f} MB. Logits differ by at most "
        f"{done.in_memory.absolute:.1e} before writing and {done.reopened.absolute:.1e} read again "
        f"({done.reopened.difference:.1e} of the largest; {proof.BOUND:.0e} allowed), in {done.reopened.num_windows} "
        f"windows, {done.reopened.num_tokens:,} tokens; {done.num_greedy} greedy tokens equal.",
        file=sys.stderr,
    )
    print(args.out)


def export(
    checkpoint: Path,
    saved: Saved,
    layout: Layout,
    out: Path,
    dtype: str,
    template: Template | None = None,
) -> Exported:
    """Write `out`, a folder that must not be there yet; with a template it is that of a fine-tuned model.

    Raises:
        UsageError: `out` exists.
        WenhaiError: the checkpoint is damaged, or transformers computes something else; `out` is not there then.
    """
    with new_folder(out) as folder:
        ours, _ = load_model(checkpoint)
        tokenizer = Tokenizer(checkpoint / TOKENIZER)
        round_weights(ours.float(), DTYPES[dtype])
        model = saved.config.model
        config = hf_config(layout, model, tokenizer, dtype)
        tensors = layout.to_theirs(weights_of(ours), model)
        in_memory = proof.compare(ours, proof.in_memory(config, tensors), tokenizer)

        num_bytes = write_weights(folder, tensors, DTYPES[dtype])
        del tensors
        durable.write_json(folder / "config.json", config)
        write_files(tokenizer, folder)
        proven = prove_texts(tokenizer, proof.trial_texts(), folder)  # before it begins texts
        write_serving_files(tokenizer, saved.config, template, folder)

        reopened, num_greedy = check_folder(ours, tokenizer, saved.config, template, folder)
        state: State = read_state(checkpoint)
        card = render_card(
            layout,
            saved,
            state,
            tokenizer,
            reopened,
            dtype=dtype,
            greedy=num_greedy,
            num_texts=proven.documents[0].num_documents + proven.trials[0].num_documents,
            held_out=held_out_bits(checkpoint, state.step),
            is_fine_tuned=template is not None,
        )
        durable.write_bytes(folder / "README.md", card.encode())
    return Exported(num_bytes, in_memory, reopened, num_greedy)


def check_folder(
    ours: GPT, tokenizer: Tokenizer, config: RunConfig, template: Template | None, folder: Path
) -> tuple[Agreement, int]:
    """Open a folder as its users do: logits, greedy tokens and ids as ours; returns how equal, and how many tokens.

    Raises:
        WenhaiError: something differs.
    """
    from transformers import AutoTokenizer

    theirs = proof.from_folder(folder)
    agreement = proof.compare(ours, theirs, tokenizer)
    backend = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    check_beginning(tokenizer, config, backend, proof.trial_texts())
    if template is not None:
        check_chat(template, config, backend)
    return agreement, proof.compare_greedy(ours, theirs, tokenizer, backend)


def hf_config(layout: Layout, model: ModelConfig, tokenizer: Tokenizer, dtype: str) -> dict[str, Any]:
    """config.json; transformers 4 calls the type `torch_dtype`, 5 `dtype`."""
    return {
        "architectures": [layout.architecture],
        "model_type": layout.name,
        **layout.describe(model),
        "vocab_size": tokenizer.vocab_size,
        "bos_token_id": tokenizer.eod,
        "eos_token_id": tokenizer.eod,
        "tie_word_embeddings": model.tied,
        "initializer_range": model.init_std,
        "dtype": dtype,
        "torch_dtype": dtype,
        "use_cache": True,
    }


def weights_of(model: GPT) -> Mapping[str, Tensor]:
    """Each parameter once, under our name of it."""
    return {name: parameter.data for name, parameter in model.named_parameters()}


def round_weights(model: GPT, dtype: torch.dtype) -> None:
    """Round weights to a narrower type, in place.

    Raises:
        WenhaiError: one is beyond what the type can hold.
    """
    for name, tensor in weights_of(model).items():
        tensor.copy_(tensor.to(dtype))
        if not tensor.isfinite().all():
            raise WenhaiError(f"{name}: has values that {dtype} cannot hold. Use --dtype bfloat16 or float32.")
