"""What programs that serve a model read besides its weights: where texts begin and end, how tokens are drawn, how a
conversation is spelled.

Every document of the training stood behind the end-of-document symbol, so the tokenizer puts that symbol before a text,
as a Llama's puts its own: transformers, vLLM and others then ask the model what it was trained on. Not so after
training with a document mask, where no token saw what lies before its document.

Names of control symbols stay characters in a text (see `tokenizer.export`), unless a chat template begins with one:
there it is a name in a text, too, and servers encode the whole. Padding is the unknown symbol, which no text becomes
and training never saw: were it the end, whoever fine-tunes the folder would mask the very token that ends an answer.

The chat template is Jinja, and writes what `pretrain.chat.templates.render` writes, and training read: the marks around
each turn. A server encodes the whole of it at once; in training each part was encoded for itself, so a token may cross
from a mark into a text where the two would be one piece.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from corpus.engine import durable
from pretrain.chat.conversations import Message
from pretrain.chat.templates import Template, render
from pretrain.config import RunConfig
from pretrain.generation.sampling import Sampling
from pretrain.hf.proof import ProofError
from tokenizer.model import EOD_PIECE, Tokenizer

CHAT = """{%- for message in messages -%}
{%- if loop.first -%}{{- START -}}{%- endif -%}
{%- if message['role'] == 'assistant' -%}
{{- ASSISTANT_PREFIX + message['content'] -}}
{%- if not loop.last -%}{{- ASSISTANT_SUFFIX -}}{%- endif -%}
{%- elif message['role'] == 'system' -%}
{{- SYSTEM_PREFIX + message['content'] + SYSTEM_SUFFIX -}}
{%- else -%}
{{- USER_PREFIX + message['content'] + USER_SUFFIX -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- ASSISTANT_PREFIX -}}{%- endif -%}
"""
UNKNOWN_ID = 0  # of every SentencePiece model
MAX_TOKENIZER_BYTES = 1 << 30
GENERATION_CONFIG = "generation_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
TRIAL = [
    Message("system", "说话简短。"),
    Message("user", "你好"),
    Message("assistant", "你好！"),
    Message("user", "再见\n“再见”"),
]


def jinja(template: Template, *, begins_with_symbol: bool) -> str:
    """The chat template of a template.

    Args:
        begins_with_symbol: Whether the end-of-document symbol stands before a conversation.
    """
    words = {"START": "bos_token" if begins_with_symbol else "''"}
    for role in ("system", "user", "assistant"):
        for place in ("prefix", "suffix"):
            text = getattr(getattr(template, role), place)
            words[f"{role}_{place}".upper()] = json.dumps(text, ensure_ascii=False)
    return re.sub("|".join(words), lambda found: words[found[0]], CHAT)  # in one go: a mark may spell one of the names


def begins_with_symbol(config: RunConfig) -> bool:
    """Whether a text's first token saw the symbol before it in training."""
    return not config.model.document_mask


def write_serving_files(tokenizer: Tokenizer, config: RunConfig, template: Template | None, folder: Path) -> None:
    """Tell the tokenizer's files how a text begins and a conversation is spelled, and write generation_config.json."""
    path = folder / "tokenizer.json"
    backend = durable.read_json(path, MAX_TOKENIZER_BYTES)
    if begins_with_symbol(config):
        backend["post_processor"] = beginning(tokenizer)
        durable.write_bytes(path, durable.canonical_json(backend))
    path = folder / "tokenizer_config.json"
    more = {
        "bos_token": EOD_PIECE,
        "add_bos_token": begins_with_symbol(config),
        "pad_token": tokenizer.piece(UNKNOWN_ID),
    }
    if template is not None:
        chat = jinja(template, begins_with_symbol=begins_with_symbol(config))
        more |= {"chat_template": chat, "split_special_tokens": not begins_with_symbol(config)}
        durable.write_bytes(folder / CHAT_TEMPLATE, chat.encode())  # the key is for programs that know no such file
    durable.write_json(path, durable.read_json(path) | more)
    durable.write_json(folder / GENERATION_CONFIG, generation_config(tokenizer))


def beginning(tokenizer: Tokenizer) -> dict[str, Any]:
    """The post-processor of tokenizer.json that puts the symbol before a text, and before each of a pair."""
    symbol = {"SpecialToken": {"id": EOD_PIECE, "type_id": 0}}
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [symbol, text],
        "pair": [symbol, text, symbol, other],
        "special_tokens": {EOD_PIECE: {"id": EOD_PIECE, "ids": [tokenizer.eod], "tokens": [EOD_PIECE]}},
    }


def generation_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """How a program draws tokens that is not told otherwise: as `python -m pretrain generate` does."""
    usual = Sampling()
    return {
        "bos_token_id": tokenizer.eod,
        "eos_token_id": tokenizer.eod,
        "pad_token_id": UNKNOWN_ID,
        "do_sample": usual.temperature > 0,
        "temperature": usual.temperature,
        "top_k": usual.top_k,  # 0: all; the libraries' own choice would be 50
        "top_p": usual.top_p,
        "repetition_penalty": usual.repetition_penalty,
    }


def check_beginning(tokenizer: Tokenizer, config: RunConfig, backend: Any, texts: list[str]) -> None:
    """That a tokenizer as its users open it puts the symbol before texts, and takes it away when it is told to.

    Raises:
        ProofError: it does not.
    """
    start = [tokenizer.eod] if begins_with_symbol(config) else []
    for text in texts:
        ids = tokenizer.encode(text)
        if backend(text)["input_ids"] != start + ids or backend(text, add_special_tokens=False)["input_ids"] != ids:
            raise ProofError(
                f"transformers begins {text[:20]!r} otherwise than with {start}. Nothing was written; please report "
                "this."
            )


def check_chat(template: Template, config: RunConfig, backend: Any) -> None:
    """That a tokenizer as its users open it spells a conversation as the training did.

    Raises:
        ProofError: it does not.
    """
    messages = [{"role": message.role, "content": message.content} for message in TRIAL]
    found = backend.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    start = EOD_PIECE if begins_with_symbol(config) else ""
    ids = backend.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    if found != start + render(template, TRIAL) or ids != backend(found, add_special_tokens=False)["input_ids"]:
        raise ProofError(f"transformers writes {found!r} with the template. Nothing was written; please report this.")
    if start and ids[0] != backend.bos_token_id:
        raise ProofError(
            f"transformers makes characters of {start} in the template. Nothing was written; please report this."
        )
