"""Serving: an exported folder as servers open it, with nothing but its own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from corpus.engine.toml import dump
from pretrain.__main__ import main
from pretrain.chat.conversations import Message
from pretrain.chat.templates import Marks, Template, load_template, named_templates, render
from pretrain.checkpoint import load_model, read_saved
from pretrain.generation.sampling import Sampling
from pretrain.hf import serving
from pretrain.hf.proof import ProofError
from pretrain.hf.serving import jinja
from tests.lazy import Lazy
from tests.pretrain.hf.runs import write_checkpoint
from tokenizer.model import EOD_PIECE, Tokenizer

transformers = Lazy("transformers")

CONVERSATION = [
    Message("system", "简短"),
    Message("user", "你好"),
    Message("assistant", "你好！"),
    Message("user", '“再"见\n'),
]


def fine_tuned(tmp_path: Path, data: Path, tokenizer: Tokenizer, template: Template, mask: bool) -> Path:
    """The export of a model that was fine-tuned with a template: under a document mask, or without one and far from its
    run."""
    checkpoint = write_checkpoint(tmp_path / "run", data, tokenizer, {"document_mask": mask})
    path = tmp_path / ("run/template.toml" if mask else "elsewhere.toml")
    path.write_text(dump(template.model_dump()))
    words = ["export", "--checkpoint", str(checkpoint), "--out", str(tmp_path / "hf")]
    assert main([*words, *([] if mask else ["--template", str(path)])]) == 0
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


def test_a_text_begins_where_documents_did(exported: Path, tokenizer: Tokenizer) -> None:
    assert not (exported / "chat_template.jinja").exists()
    backend = transformers.AutoTokenizer.from_pretrained(str(exported))
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


def test_the_library_below_puts_it_there_too(exported: Path, tokenizer: Tokenizer) -> None:
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_file(str(exported / "tokenizer.json"))
    assert backend.encode("春天").ids == [tokenizer.eod, *tokenizer.encode("春天")]


def test_tokens_are_drawn_as_our_own_command_draws_them(exported: Path, tokenizer: Tokenizer) -> None:
    drawn = transformers.GenerationConfig.from_pretrained(str(exported))
    usual = Sampling()
    assert drawn.do_sample is True
    assert (drawn.temperature, drawn.top_k, drawn.top_p) == (usual.temperature, usual.top_k, usual.top_p)
    assert drawn.repetition_penalty == usual.repetition_penalty
    assert (drawn.eos_token_id, drawn.pad_token_id) == (tokenizer.eod, 0)


def test_a_pipeline_continues_as_our_model_does(exported: Path, llama: Path, tokenizer: Tokenizer) -> None:
    generate = transformers.pipeline("text-generation", model=str(exported), dtype=torch.float32, device="cpu")
    found = generate("春天来了", max_new_tokens=8, do_sample=False, return_tensors=True)
    expected = greedy(llama, tokenizer, "春天来了", 8)
    assert list(found[0]["generated_token_ids"]) == expected and len(expected) > len(tokenizer.encode("春天来了")) + 1
    drawn = generate(["春天来了", "学而时习之，不亦说乎"], max_new_tokens=4, batch_size=2)  # needs padding
    assert len(drawn) == 2


@pytest.mark.parametrize("mask", [True, False])
def test_a_conversation_is_spelled_as_in_the_fine_tuning(
    tmp_path: Path, data: Path, tokenizer: Tokenizer, mask: bool
) -> None:
    template = Template(user=Marks(prefix='<"问"> ', suffix="\n"), assistant=Marks(prefix="答\\：\t", suffix="\n\n"))
    folder = fine_tuned(tmp_path, data, tokenizer, template, mask)
    backend = transformers.AutoTokenizer.from_pretrained(str(folder))
    messages = [{"role": message.role, "content": message.content} for message in CONVERSATION]
    text = render(template, CONVERSATION)
    ids = backend.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids == [*([] if mask else [tokenizer.eod]), *tokenizer.encode(text)]
    assert backend.apply_chat_template(messages[:3], tokenize=False).endswith("你好！")
    assert backend("春天")["input_ids"] == [*([] if mask else [tokenizer.eod]), *tokenizer.encode("春天")]
    assert (json.loads((folder / "tokenizer.json").read_text())["post_processor"] is None) is mask
    card = (folder / "README.md").read_text()
    assert "apply_chat_template" in card and "follows no instructions" not in card
    assert ("becomes the symbol" in card) is not mask
    kept = transformers.AutoTokenizer.from_pretrained(str(folder))("<|endoftext|>", add_special_tokens=False)[
        "input_ids"
    ]
    assert (kept == [tokenizer.eod]) is not mask
    (folder / "chat_template.jinja").unlink()  # the key says the same
    assert transformers.AutoTokenizer.from_pretrained(str(folder)).apply_chat_template(
        messages, tokenize=False
    ) == backend.apply_chat_template(messages, tokenize=False)


NAMES = Template(system=Marks(prefix="USER_PREFIX", suffix="START"), user=Marks(prefix="ASSISTANT_SUFFIX {{ x }} %}"))


@pytest.mark.parametrize("template", [*map(load_template, named_templates()), NAMES])
def test_every_template_has_its_jinja(template: Template) -> None:
    import jinja2

    chat = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(
        jinja(template, begins_with_symbol=True)
    )
    messages = [message._asdict() for message in CONVERSATION]
    found = chat.render(messages=messages, bos_token=EOD_PIECE, add_generation_prompt=True)
    assert found == EOD_PIECE + render(template, CONVERSATION)


def test_a_tokenizer_that_begins_otherwise_is_refused(exported: Path, llama: Path, tokenizer: Tokenizer) -> None:
    config = read_saved(llama).config
    backend = transformers.AutoTokenizer.from_pretrained(str(exported))
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
