"""README.md of an exported model: how to use it, what it is, what it was trained on, and what was compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpus.engine.durable import read_json
from pretrain.checkpoint.records import Saved
from pretrain.config import RunConfig
from pretrain.hf.layouts import Layout
from pretrain.hf.proof import BOUND, Agreement
from pretrain.parallel.base.params import num_parameters
from pretrain.training.state import State
from tokenizer.model import EOD_PIECE, Tokenizer

CARD = """---
language: zh
library_name: transformers
pipeline_tag: text-generation
---

# {title}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "path/to/this/folder"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
inputs = tokenizer("春天", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=50)[0], skip_special_tokens=True))
```

{notes}

## Model

| | |
|---|---|
{model}

## Training

| | |
|---|---|
{training}

{kind}

## Equality

Logits of transformers and of the model that was trained{rounded} differ by at most \
{difference:.1e} of a window's largest logit
({absolute:.1e}), in {num_windows} windows of real text and {num_tokens:,} tokens, computed in fp32; \
{bound:.0e} was allowed.
{greedy} greedily generated tokens were equal. The tokenizer gave equal ids on {num_texts:,} texts.
"""
DOCUMENT_START = (
    f"- A text begins after `{EOD_PIECE}`, as every document did in training. The tokenizer puts it there by itself; "
    "`add_special_tokens=False` leaves it out."
)
PLAIN = """It is a plain language model: it continues text, follows no instructions, and repeats \
what its training text holds, errors
and opinions included. Nobody has checked what it says."""
FINE_TUNED = """It was fine-tuned on examples that were spelled with the chat template of this folder, \
and answers in their manner. It repeats
what its training text holds, errors and opinions included. Nobody has checked what it says."""
CHAT = (
    '- `tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")` spells a '
    "conversation as the "
    f"fine-tuning did; an answer ends with `{EOD_PIECE}`."
)
CHAT_SYMBOL = (
    f" The name `{EOD_PIECE}` in a text becomes the symbol: give `split_special_tokens=True` with texts of others."
)
MASKED_START = (
    "- In training a token saw only its own document (document mask). transformers has no such mask: give the model "
    "one document at a time, without a symbol before it."
)
PREFIX = (
    "- In training the beginning of each window or document was a prefix, whose tokens saw each other both ways "
    "(prefix LM). "
    "transformers has no such mask in this layout: what it generates differs from `python -m pretrain generate`."
)
RESET = "- In training positions began anew with each document."
ROUNDED = ", its weights rounded to {dtype} first,"
ROUNDING = (
    "- The weights are {dtype}, rounded from those that were trained; nobody measured the rounded model. Give "
    "`from_pretrained` `dtype=torch.float32` to compute in fp32 with them."
)
ZERO_BIASES = "- The model has no biases; the layout has, and they are zeros."


def render_card(
    layout: Layout,
    saved: Saved,
    state: State,
    tokenizer: Tokenizer,
    agreement: Agreement,
    *,
    dtype: str,
    greedy: int,
    num_texts: int,
    held_out: float | None,
    is_fine_tuned: bool,
) -> str:
    """The whole file."""
    config = saved.config
    parameters = num_parameters(config.model, tokenizer.vocab_size)
    return CARD.format(
        title=f"文海 wenhai, {_count(parameters)} parameters",
        notes="\n".join(_notes(layout, config, dtype, is_fine_tuned)),
        kind=FINE_TUNED if is_fine_tuned else PLAIN,
        model=_rows(_model_facts(layout, config, tokenizer, parameters, dtype)),
        training=_rows(_training_facts(saved, state, held_out)),
        rounded="" if dtype == "float32" else ROUNDED.format(dtype=dtype),
        difference=agreement.difference,
        absolute=agreement.absolute,
        num_windows=agreement.num_windows,
        num_tokens=agreement.num_tokens,
        bound=BOUND,
        greedy=greedy,
        num_texts=num_texts,
    )


def held_out_bits(checkpoint: Path, step: int) -> float | None:
    """Held-out bits per character that the run of a checkpoint wrote of this very step, if it did."""
    path = checkpoint.parent.parent / "summary.json"
    summary: Any = read_json(path) if path.is_file() else {}
    if isinstance(summary, dict) and summary.get("steps") == step:
        bits = summary.get("held_out_bits_per_character")
        return float(bits) if isinstance(bits, int | float) else None
    return None


def _notes(layout: Layout, config: RunConfig, dtype: str, is_fine_tuned: bool) -> list[str]:
    notes = [MASKED_START if config.model.document_mask else DOCUMENT_START]
    notes += [CHAT + ("" if config.model.document_mask else CHAT_SYMBOL)] if is_fine_tuned else []
    notes += [RESET] if config.data.reset_positions else []
    notes += [PREFIX] if config.data.prefix_lm else []
    notes += [ZERO_BIASES] if layout.expressed(config.model) != config.model else []
    notes += [ROUNDING.format(dtype=dtype)] if dtype != "float32" else []
    return notes


def _model_facts(
    layout: Layout, config: RunConfig, tokenizer: Tokenizer, parameters: int, dtype: str
) -> dict[str, str]:
    model = config.model
    return {
        "layout": f"`{layout.architecture}`, {dtype}",
        "parameters": f"{parameters:,}",
        "layers": f"{model.num_layers} of width {model.hidden_size:,}, feed-forward {model.ffn_size:,}",
        "heads": f"{model.num_heads}, {model.kv_heads} of keys and values",
        "choices": f"{model.positions}, {model.norm}, {model.activation}, {'tied' if model.tied else 'untied'} output",
        "context": f"{model.sequence_length:,} tokens",
        "vocabulary": f"{tokenizer.vocab_size:,} tokens, sha256 of `tokenizer.model` `{tokenizer.sha256}`",
    }


def _training_facts(saved: Saved, state: State, held_out: float | None) -> dict[str, str]:
    config = saved.config
    corpora = ", ".join(f"`{corpus.label}`" for corpus in config.data.corpora)
    facts = {
        "tokens": f"{state.num_tokens:,} in {state.step:,} steps ({state.num_samples:,} samples)",
        "text": f"{corpora + '; ' if corpora else ''}token shards with the digest `{saved.data}`",
        "batch": f"{config.training.global_batch_size:,} samples of {config.model.sequence_length:,} tokens",
        "optimizer": f"AdamW, learning rate {config.optimizer.learning_rate:g} ({config.schedule.kind}), "
        f"weight decay {config.optimizer.weight_decay:g}",
        "precision": config.training.precision,
        "seed": str(config.training.seed),
    }
    if state.num_bad_steps:
        facts["steps left out"] = f"{state.num_bad_steps:,}, whose loss or gradient was not finite"
    if held_out is not None:
        facts["held out"] = f"{held_out:.3f} bits per character"
    return facts


def _rows(facts: dict[str, str]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in facts.items())


def _count(number: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)
