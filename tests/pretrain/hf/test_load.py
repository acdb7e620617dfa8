"""Import: what transformers saved becomes the first checkpoint of a run that trains on; variants are refused by
name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from pretrain import checkpoint
from pretrain.__main__ import main
from pretrain.checkpoint import load_model, read_saved, read_state
from pretrain.config import corpus_folders, load_config
from pretrain.corpora import new_loader, open_corpora, order_from
from pretrain.hf.files import Weights
from pretrain.run.train import train
from tests.pretrain.hf.runs import save, their_gpt2, their_llama
from tokenizer.model import Tokenizer

SHORT = ("training.num_steps=2", "training.global_batch_size=2", "schedule.warmup_steps=1", "metrics.every_steps=1",
         "metrics.tensorboard=false", "evaluation.sample_tokens=2", "evaluation.max_tokens=2000",
         "training.device=cpu")  # fmt: skip


def run(model: Path, out: Path, data: Path, *options: str) -> int:
    words = ["import", "--model", str(model), "--out", str(out), "--data", str(data), *options]
    return main([*words, *(word for setting in SHORT for word in ("--set", setting))])


def first_loss(theirs: Any, out: Path, data: Path) -> float:
    """Of the first batch of the run, by transformers alone."""
    config = load_config(str(out / "config.toml"))
    corpora = open_corpora(config.data, corpus_folders(config.data, data))
    batch = new_loader(corpora, order_from(config, corpora=corpora), config).batch(0, 2)
    with torch.no_grad():
        logits = theirs(input_ids=torch.from_numpy(batch.tokens).long()).logits[..., :500]
    return float(F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).long().flatten()))


@pytest.mark.parametrize("kind", ["llama tied, padded", "gpt2"])
def test_a_run_goes_on_from_what_transformers_saved(
    kind: str, data: Path, tokenizer: Tokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = {
        "llama tied, padded": lambda: their_llama(520, tie_word_embeddings=True),  # more rows than the tokenizer has
        "gpt2": lambda: their_gpt2(500),
    }[kind]()
    out = tmp_path / "run"
    assert run(save(theirs, tmp_path / "hf", tokenizer), out, data) == 0
    told = capfd.readouterr()
    command = (
        f"--config {out / 'config.toml'} --out {out} --data {data} --tokenizer {tmp_path / 'hf' / 'tokenizer.model'}"
    )
    assert told.out.strip() == f"python -m pretrain train {command}"
    newest = checkpoint.newest(out)
    assert newest is not None and newest.name == "step-00000000" and read_state(newest).step == 0
    model = read_saved(newest).config.model
    assert model.padded_vocab_size == (640 if "padded" in kind else 512) and model.vocab_size == 500
    weights = load_file(newest / "shard-00001-model-00001-of-00001.safetensors")
    assert not any(tensor.any() for name, tensor in weights.items() if name.startswith("optimizer."))

    train(load_config(str(out / "config.toml")), data, out, tokenizer.path)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if record["kind"] == "train"]
    assert losses[0] == pytest.approx(first_loss(theirs, out, data), rel=1e-5)
    assert len(losses) == 2


def test_there_and_back_and_there_are_the_same_bytes(exported: Path, data: Path, tmp_path: Path) -> None:
    assert run(exported, tmp_path / "run", data) == 0
    second = checkpoint.newest(tmp_path / "run")
    assert main(["export", "--checkpoint", str(second), "--out", str(tmp_path / "again")]) == 0
    for name in ("model.safetensors", "tokenizer.json", "tokenizer.model", "generation_config.json"):
        assert (exported / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    configs = [json.loads((folder / "config.json").read_text()) for folder in (exported, tmp_path / "again")]
    assert configs[0] | {"initializer_range": 0} == configs[1] | {"initializer_range": 0}


@pytest.fixture
def saved(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    return save(their_llama(500), tmp_path / "hf", tokenizer)


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_tensors(folder: Path, **changes: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path) | changes, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model_type": "mistral"}, "the architecture is 'mistral'"),
        ({"quantization_config": {"bits": 4}}, "the weights are quantised"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "rope of type 'yarn'"),
        ({"num_hidden_layers": None}, "model.num_layers"),
    ],
)
def test_other_models_are_refused_by_name(
    saved: Path, data: Path, tmp_path: Path, changes: dict[str, Any], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    change_config(saved, **changes)
    assert run(saved, tmp_path / "run", data) == 2
    assert told in capfd.readouterr().err and not (tmp_path / "run").exists()


def test_a_config_without_its_sizes_is_refused(
    saved: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((saved / "config.json").read_text())
    del config["intermediate_size"]
    (saved / "config.json").write_text(json.dumps(config))
    assert run(saved, tmp_path / "run", data) == 2
    assert "has no intermediate_size" in capfd.readouterr().err


def test_tensors_that_do_not_fit_the_config_are_refused(
    saved: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "model.layers.0.self_attn.k_proj.weight"
    whole = Weights(saved)(name)
    change_tensors(saved, **{name: whole[:-1].clone()})
    assert run(saved, tmp_path / "run", data) == 2
    assert "layers.0.attention.qkv.weight that config.json describes" in capfd.readouterr().err
    change_tensors(saved, **{name: whole, "model.layers.0.self_attn.q_norm.weight": torch.ones(8)})
    assert run(saved, tmp_path / "run", data) == 2
    assert "holds model.layers.0.self_attn.q_norm.weight" in capfd.readouterr().err
    change_config(saved, num_hidden_layers=3)
    assert run(saved, tmp_path / "run", data) == 2
    assert "has no model.layers.2" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_buffers_and_a_second_copy_of_a_tied_matrix_are_no_tensors_of_ours(
    data: Path, tokenizer: Tokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = save(their_gpt2(500), tmp_path / "hf", tokenizer)
    tensors = {
        name.removeprefix("transformer."): tensor for name, tensor in load_file(folder / "model.safetensors").items()
    }
    more = {"h.0.attn.bias": torch.ones(1, 1, 24, 24), "lm_head.weight": tensors["wte.weight"].clone()}
    save_file(tensors | more, folder / "model.safetensors", metadata={"format": "pt"})
    assert run(folder, tmp_path / "run", data) == 0  # as GPT-2 was published
    change_tensors(folder, **{"lm_head.weight": more["lm_head.weight"] + 1})
    assert run(folder, tmp_path / "other", data) == 2
    assert "lm_head.weight: is not the embedding" in capfd.readouterr().err


def test_pickles_are_never_read(saved: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    assert run(saved, tmp_path / "run", data) == 2
    told = capfd.readouterr().err
    assert "pickles only" in told and "safe_serialization=True" in told


def test_damaged_files_are_refused(saved: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = saved / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert run(saved, tmp_path / "run", data) == 1
    assert "model.safetensors: missing or damaged" in capfd.readouterr().err
    path.rename(saved / "beside.safetensors")
    (saved / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../beside.safetensors"}}')
    assert run(saved, tmp_path / "run", data) == 1
    assert "outside of the folder" in capfd.readouterr().err


def test_the_vocabulary_has_to_be_the_models(
    saved: Path, data: Path, tokenizer: Tokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (saved / "tokenizer.model").unlink()
    assert run(saved, tmp_path / "run", data) == 2
    assert "has no tokenizer.model" in capfd.readouterr().err
    assert run(saved, tmp_path / "run", data, "--tokenizer", str(tokenizer.path)) == 0
    assert f"--tokenizer {tokenizer.path}" in capfd.readouterr().out
    small = save(their_llama(400), tmp_path / "small", tokenizer)
    assert run(small, tmp_path / "other", data) == 2
    assert "has 500 entries, the model 400" in capfd.readouterr().err


def test_a_run_is_not_written_over_and_another_config_can_be_named(
    saved: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(saved, out, data, "--config", "demo", "--set", "model.document_mask=true") == 0
    config = load_config(str(out / "config.toml"))
    assert config.optimizer == load_config("demo").optimizer and config.model.document_mask
    ours, _ = load_model(out / "checkpoints" / "step-00000000")
    assert torch.equal(ours.get_parameter("final_norm.weight"), Weights(saved)("model.norm.weight"))
    before = sorted(path.stat().st_mtime_ns for path in out.rglob("*"))
    assert run(saved, out, data) == 2
    assert "holds a run already" in capfd.readouterr().err
    assert sorted(path.stat().st_mtime_ns for path in out.rglob("*")) == before
