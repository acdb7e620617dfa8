"""Export: a folder that transformers opens and that computes what the checkpoint does, or no folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from corpus.engine.errors import WenhaiError
from pretrain.__main__ import main
from pretrain.checkpoint import load_model, read_saved
from pretrain.hf import export, proof
from pretrain.hf.files import Weights, write_weights
from pretrain.hf.layouts import LLAMA, Layout, choose
from pretrain.hf.proof import ProofError
from tests.lazy import Lazy
from tests.pretrain.hf.runs import OLD_FASHIONED, write_checkpoint
from tokenizer.model import Tokenizer

transformers = Lazy("transformers")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory, data: Path, tokenizer: Tokenizer) -> Path:
    masked = {**OLD_FASHIONED, "document_mask": True}
    return write_checkpoint(tmp_path_factory.mktemp("gpt2"), data, tokenizer, masked, data={"prefix_lm": True})


def run(checkpoint: Path, out: Path, *options: str) -> int:
    return main(["export", "--checkpoint", str(checkpoint), "--out", str(out), *options])


@torch.no_grad()
def difference(checkpoint: Path, folder: Path, dtype: torch.dtype = torch.float32) -> float:
    """Of logits of random ids, by transformers alone against the checkpoint with rounded weights."""
    ours, _ = load_model(checkpoint)
    for parameter in ours.parameters():
        parameter.copy_(parameter.to(dtype))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    ids = torch.randint(0, 500, (3, 24), generator=torch.Generator().manual_seed(2))
    found: Tensor = theirs(ids).logits
    assert found.shape == (3, 24, 500)  # the padding of the vocabulary is cut off
    return float((found - ours(ids)[..., :500]).abs().max())


def test_a_llama_opens_and_computes_the_same(llama: Path, exported: Path, tokenizer: Tokenizer) -> None:
    out = exported
    assert difference(llama, out) < 1e-4
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "generation_config.json",
        "model.safetensors", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"]  # fmt: skip
    assert (out / "model.safetensors").stat().st_mode == (out / "config.json").stat().st_mode
    config = json.loads((out / "config.json").read_text())
    assert (config["vocab_size"], config["eos_token_id"], config["num_key_value_heads"]) == (500, tokenizer.eod, 2)
    loaded = transformers.AutoTokenizer.from_pretrained(str(out))
    text = "学而时习之 abc\n"
    assert loaded(text)["input_ids"] == [tokenizer.eod, *tokenizer.encode(text)]
    assert [path.name for path in out.parent.iterdir()] == ["hf"]  # nothing temporary


def test_the_card_says_what_it_is_and_its_example_runs(llama: Path, exported: Path, tokenizer: Tokenizer) -> None:
    card = (exported / "README.md").read_text()
    for line in ("| tokens | 0 in 0 steps", read_saved(llama).data, tokenizer.sha256, "| held out | 4.500 bits",
                 "8, 2 of keys and values", "untied output", "A text begins after `<|endoftext|>`"):  # fmt: skip
        assert line in card, line
    assert "document mask" not in card and "prefix LM" not in card and "rounded" not in card
    code = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(exported))
    code = code.replace("max_new_tokens=50", "max_new_tokens=5")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["inputs"]["input_ids"][0].tolist() == [tokenizer.eod, *tokenizer.encode("春天")]


def test_a_gpt2_opens_and_its_card_names_what_transformers_lacks(
    gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "hf"
    assert run(gpt2, out, "--format", "gpt2") == 0
    told = capsys.readouterr()
    assert told.out == f"{out}\n" and "GPT2LMHeadModel, float32" in told.err and "greedy tokens equal" in told.err
    assert difference(gpt2, out) < 1e-4
    card = (out / "README.md").read_text()
    assert "document mask" in card and "prefix LM" in card and "The tokenizer puts it there" not in card
    assert "no biases" not in card


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.long)])
def test_rounded_weights_are_those_that_were_compared(llama: Path, tmp_path: Path, dtype: str) -> None:
    out = tmp_path / "hf"
    assert run(llama, out, "--dtype", dtype) == 0
    kind: torch.dtype = getattr(torch, dtype)
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {kind}
    assert difference(llama, out, kind) < 1e-4
    assert transformers.AutoModelForCausalLM.from_pretrained(str(out)).dtype == kind
    card = (out / "README.md").read_text()  # what was compared was not the model that was trained
    assert f"the model that was trained, its weights rounded to {dtype} first, differ" in card
    assert f"The weights are {dtype}, rounded" in card


def test_a_value_beyond_float16_is_refused(data: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    ours, _ = load_model(write_checkpoint(tmp_path / "run", data, tokenizer, {}))
    with torch.no_grad():
        ours.get_parameter("layers.0.mlp.up.weight")[0, 0] = 1e6
    with pytest.raises(WenhaiError, match=r"layers\.0\.mlp\.up\.weight: has values that torch\.float16 cannot hold"):
        export.round_weights(ours, torch.float16)


def test_many_files_hold_the_same_tensors(llama: Path, exported: Path, tmp_path: Path) -> None:
    one, many = Weights(exported), tmp_path / "many"
    many.mkdir()
    shutil.copy(exported / "config.json", many)
    write_weights(many, {name: one(name) for name in one.files}, torch.float32, 30_000)
    files = sorted(many.glob("*.safetensors"))
    assert len(files) > 3 and files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    assert all(sum(t.nbytes for t in load_file(path).values()) <= 30_000 or len(load_file(path)) == 1 for path in files)
    again = Weights(many)
    assert one.files.keys() == again.files.keys()
    assert all(torch.equal(one(name), again(name)) for name in one.files)
    index = json.loads((many / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(one(name).nbytes for name in one.files)
    assert difference(llama, many) < 1e-4


def test_what_differs_is_not_written(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = Layout.to_theirs

    def swapped(self: Layout, *args: Any) -> dict[str, Tensor]:
        tensors = true(self, *args)
        name = "model.layers.1.self_attn.q_proj.weight"
        return tensors | {name: tensors[name].flip(0)}

    monkeypatch.setattr(Layout, "to_theirs", swapped)
    with pytest.raises(ProofError, match="Nothing was written"):
        export.export(llama, read_saved(llama), LLAMA, tmp_path / "hf", "float32")
    assert not list(tmp_path.iterdir())


def test_what_differs_when_it_is_opened_again_gets_no_name(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = export.write_weights

    def damaged(folder: Path, tensors: dict[str, Tensor], *args: Any) -> int:
        name = "lm_head.weight"
        return true(folder, tensors | {name: tensors[name] + 0.1 * torch.arange(500)[:, None]}, *args)

    monkeypatch.setattr(export, "write_weights", damaged)
    with pytest.raises(ProofError):
        export.export(llama, read_saved(llama), LLAMA, tmp_path / "hf", "float32")
    assert not list(tmp_path.iterdir())


def test_greedy_tokens_must_be_the_same(llama: Path, exported: Path, tokenizer: Tokenizer) -> None:
    ours, theirs = load_model(llama)[0], proof.from_folder(exported)
    backend = transformers.AutoTokenizer.from_pretrained(str(exported))
    assert proof.compare_greedy(ours, theirs, tokenizer, backend) > 0
    with torch.no_grad():
        theirs.lm_head.weight.copy_(theirs.lm_head.weight.roll(1, 0))
    with pytest.raises(ProofError, match="transformers generates token"):
        proof.compare_greedy(ours, theirs, tokenizer, backend)


def test_a_folder_that_is_there_is_left_alone(llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hf").mkdir()
    assert run(llama, tmp_path / "hf") == 2
    assert "is there already" in capsys.readouterr().err and not list((tmp_path / "hf").iterdir())


def test_a_layout_that_cannot_hold_the_model_is_refused_before_reading(
    gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(gpt2, tmp_path / "hf", "--format", "llama") == 2
    assert "llama has no positions learned" in capsys.readouterr().err
    assert choose(read_saved(gpt2).config.model, None).name == "gpt2"


def test_without_transformers_it_says_what_to_install(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof, "find_spec", lambda name: None)
    assert run(llama, tmp_path / "hf") == 2
    assert "pip install 'wenhai[hf]'" in capsys.readouterr().err
