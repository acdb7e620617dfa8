"""Serving: an exported folder as servers open it, with nothing but its own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig, pipeline

from pretrain.checkpoint import load_model, read_saved
from pretrain.finetuning.conversations import Message
from pretrain.finetuning.templates import Marks, Template, load_template, named_templates, render
from pretrain.generation.sampling import Sampling
from pretrain.hf import serving
from pretrain.hf.chat import jinja
from pretrain.hf.export import export
from pretrain.hf.layouts import LLAMA
from pretrain.hf.proof import ProofError
from pretrain.toml import dump
from tests.pretrain.hf.runs import write_checkpoint
from tokenizer.model import EOD_PIECE, Tokenizer

CONVERSATION = [
    Message("system", "简短"),
    Message("user", "你好"),
    Message("assistant", "你好！"),
    Message("user", '“再"见\n'),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, data: Path, tokenizer: Tokenizer) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("run"), data, tokenizer, {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    out = tmp_path_factory.mktemp("hf") / "out"
    export(checkpoint, read_saved(checkpoint), LLAMA, out, "float32")
    return out


def masked(
    tmp_path: Path, data: Path, tokenizer: Tokenizer, template: Template | None = None, mask: bool = True
) -> Path:
    """The export of a model that was trained with a document mask, or of one that was fine-tuned with a template."""
    checkpoint = write_checkpoint(tmp_path / "run", data, tokenizer, {"document_mask": mask})
    if template is not None:
        (tmp_path / "run" / "template.toml").write_text(dump(template.model_dump()))
    export(checkpoint, read_saved(checkpoint), LLAMA, tmp_path / "hf", "float32")
    return tmp_path / "hf"


@torch.no_grad()
def greedy(checkpoint: Path, tokenizer: Tokenizer, prompt: str, count: int) -> list[int]:
    """A prompt and the most probable tokens after it, one whole forward for each; the end-of-document token ends it."""
    model, _ = load_model(checkpoint)
    ids = [tokenizer.eod, *tokenizer.encode(prompt)]
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids]))[0, -1, : tokenizer.vocab_size].argmax()))
        if ids[-1] == tokenizer.eod:
            break
    return ids


def test_a_text_begins_where_documents_did(folder: Path, tokenizer: Tokenizer) -> None:
    backend = AutoTokenizer.from_pretrained(str(folder))
    ids = tokenizer.encode("春天<|endoftext|>")  # its name stays characters
    assert tokenizer.eod not in ids
    assert backend("春天<|endoftext|>")["input_ids"] == [tokenizer.eod, *ids]
    assert backend("春天<|endoftext|>", add_special_tokens=False)["input_ids"] == ids
    assert backend("春", "天")["input_ids"] == [
        tokenizer.eod,
        *tokenizer.encode("春"),
        tokenizer.eod,
        *tokenizer.encode("天"),
    ]
    assert backend.decode([tokenizer.eod, *ids], skip_special_tokens=True) == "春天<|endoftext|>"
    assert (backend.bos_token_id, backend.eos_token_id, backend.pad_token_id) == (tokenizer.eod, tokenizer.eod, 0)
    batch = backend(["春天", "春天来了，花开了"], padding=True, padding_side="left")
    assert [sum(mask) for mask in batch["attention_mask"]] == [
        len(tokenizer.encode(text)) + 1 for text in ("春天", "春天来了，花开了")
    ]


def test_the_library_below_puts_it_there_too(folder: Path, tokenizer: Tokenizer) -> None:
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_file(str(folder / "tokenizer.json"))
    assert backend.encode("春天").ids == [tokenizer.eod, *tokenizer.encode("春天")]


def test_tokens_are_drawn_as_our_own_command_draws_them(folder: Path, tokenizer: Tokenizer) -> None:
    drawn = GenerationConfig.from_pretrained(str(folder))
    usual = Sampling()
    assert drawn.do_sample is True
    assert (drawn.temperature, drawn.top_k, drawn.top_p) == (usual.temperature, usual.top_k, usual.top_p)
    assert drawn.repetition_penalty == usual.repetition_penalty
    assert (drawn.eos_token_id, drawn.pad_token_id) == (tokenizer.eod, 0)


def test_a_pipeline_continues_as_our_model_does(folder: Path, checkpoint: Path, tokenizer: Tokenizer) -> None:
    generate = pipeline("text-generation", model=str(folder), dtype=torch.float32, device="cpu")
    found = generate("春天来了", max_new_tokens=8, do_sample=False, return_tensors=True)
    expected = greedy(checkpoint, tokenizer, "春天来了", 8)
    assert list(found[0]["generated_token_ids"]) == expected and len(expected) > len(tokenizer.encode("春天来了")) + 1
    drawn = generate(["春天来了", "学而时习之，不亦说乎"], max_new_tokens=4, batch_size=2)  # needs padding
    assert len(drawn) == 2


def test_under_a_document_mask_nothing_stands_before_a_text(tmp_path: Path, data: Path, tokenizer: Tokenizer) -> None:
    folder = masked(tmp_path, data, tokenizer)
    assert AutoTokenizer.from_pretrained(str(folder))("春天")["input_ids"] == tokenizer.encode("春天")
    assert json.loads((folder / "tokenizer.json").read_text())["post_processor"] is None
    assert not (folder / "chat_template.jinja").exists()


@pytest.mark.parametrize("mask", [True, False])
def test_a_conversation_is_spelled_as_in_the_fine_tuning(
    tmp_path: Path, data: Path, tokenizer: Tokenizer, mask: bool
) -> None:
    template = Template(user=Marks(prefix='<"问"> ', suffix="\n"), assistant=Marks(prefix="答\\：\t", suffix="\n\n"))
    folder = masked(tmp_path, data, tokenizer, template, mask)
    backend = AutoTokenizer.from_pretrained(str(folder))
    messages = [{"role": message.role, "content": message.content} for message in CONVERSATION]
    text = render(template, CONVERSATION)
    ids = backend.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids == [*([] if mask else [tokenizer.eod]), *tokenizer.encode(text)]
    assert backend.apply_chat_template(messages[:3], tokenize=False).endswith("你好！")
    card = (folder / "README.md").read_text()
    assert "apply_chat_template" in card and "follows no instructions" not in card
    assert ("becomes the symbol" in card) is not mask
    kept = AutoTokenizer.from_pretrained(str(folder))("<|endoftext|>", add_special_tokens=False)["input_ids"]
    assert (kept == [tokenizer.eod]) is not mask
    (folder / "chat_template.jinja").unlink()  # the key says the same
    assert AutoTokenizer.from_pretrained(str(folder)).apply_chat_template(
        messages, tokenize=False
    ) == backend.apply_chat_template(messages, tokenize=False)


@pytest.mark.parametrize("name", named_templates())
def test_every_template_has_its_jinja(name: str) -> None:
    import jinja2

    template = load_template(name)
    chat = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(
        jinja(template, begins_with_symbol=True)
    )
    messages = [message._asdict() for message in CONVERSATION]
    found = chat.render(messages=messages, bos_token=EOD_PIECE, add_generation_prompt=True)
    assert found == EOD_PIECE + render(template, CONVERSATION)


def test_a_tokenizer_that_begins_otherwise_is_refused(
    folder: Path, checkpoint: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = read_saved(checkpoint).config
    backend = AutoTokenizer.from_pretrained(str(folder))
    serving.check_beginning(tokenizer, config, backend, ["春天"])
    other = config.model_copy(update={"model": config.model.model_copy(update={"document_mask": True})})
    with pytest.raises(ProofError, match="begins '春天' otherwise"):
        serving.check_beginning(tokenizer, other, backend, ["春天"])
    backend.chat_template = "{{ messages[0]['content'] }}"
    with pytest.raises(ProofError, match="with the template"):
        serving.check_chat(load_template("dialogue"), config, backend)
    backend.chat_template = jinja(load_template("dialogue"), begins_with_symbol=True)
    with pytest.raises(ProofError, match="makes characters of"):  # split_special_tokens is still true
        serving.check_chat(load_template("dialogue"), config, backend)
