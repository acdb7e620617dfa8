"""The folder: what transformers makes of it, and that it is there only where everything was equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tokenizer.export.conftest import write
from tests.tokenizer.test_scores import train_asterisks
from tests.tokenizer.texts import documents
from tokenizer.__main__ import main
from tokenizer.commands.export import read_files
from tokenizer.documents import text_files
from tokenizer.export import folder, proof
from tokenizer.export.convert import ExportError, tokenizer_json
from tokenizer.export.folder import export
from tokenizer.export.proof import Document, open_transformers
from tokenizer.model import EOD_PIECE, Tokenizer
from tokenizer.pieces import on_grid

FEW = [Document(f"document {number}", text) for number, text in enumerate(documents(30))]
FILES = ["README.md", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"]


@pytest.fixture(autouse=True)
def short_trials(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All trial texts take seconds, and are compared in one test."""
    if "exported" not in request.fixturenames:
        monkeypatch.setattr(folder, "trial_documents", lambda tokenizer: [Document("trial text edge 0", "")])


@pytest.fixture(scope="module")
def exported(models: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "hf"
    proof = export(models["bpe with symbols"], FEW, out, num_documents=30)
    assert [found.num_documents for found in proof.documents] == [30, 30]
    assert all(found.is_equal and found.num_documents > 1000 for found in proof.trials)
    return out


@pytest.fixture(scope="module")
def loaded(exported: Path) -> Any:
    return open_transformers(exported).backend


def test_what_is_written(exported: Path, models: dict[str, Tokenizer]) -> None:
    tokenizer = models["bpe with symbols"]
    assert sorted(path.name for path in exported.iterdir()) == FILES
    assert [path.name for path in exported.parent.iterdir()] == ["hf"]
    assert (exported / "tokenizer.model").read_bytes() == tokenizer.path.read_bytes()
    readme = (exported / "README.md").read_text()
    assert tokenizer.sha256 in readme and "30 documents" in readme and "transformers 5" in readme
    assert "`<n>`, `<|img|>`" in readme and "from behind the symbol" in readme


def test_the_same_bytes_each_time(models: dict[str, Tokenizer], tmp_path: Path) -> None:
    for name in ("one", "other"):
        export(models["unigram"], FEW, tmp_path / name, num_documents=30)
    assert "behind the symbol" not in (tmp_path / "one" / "README.md").read_text()
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes() for name in FILES)


def test_transformers_knows_the_symbols(loaded: Any, models: dict[str, Tokenizer]) -> None:
    tokenizer = models["bpe with symbols"]
    assert (loaded.eos_token, loaded.eos_token_id, len(loaded)) == (EOD_PIECE, tokenizer.eod, tokenizer.vocab_size)
    assert (loaded.bos_token_id, loaded.pad_token_id, loaded.chat_template) == (None, None, None)
    assert loaded.model_max_length > 10**20
    names = [tokenizer.piece(id) for id in range(tokenizer.vocab_size) if tokenizer.is_control(id)]
    assert set(loaded.all_special_tokens) == set(names)
    assert loaded.decode([tokenizer.eod, *tokenizer.encode("学而"), tokenizer.eod], skip_special_tokens=True) == "学而"


@pytest.mark.parametrize(
    "text", ["", " a  b \n", "\r\n\t", f"学{EOD_PIECE}而", "<|im_start|>user\n<n>", "<unk> <0x0A>▁", " ,'s ."]
)
def test_text_stays_text(loaded: Any, models: dict[str, Tokenizer], text: str) -> None:
    ids = models["bpe with symbols"].encode(text)
    assert loaded(text)["input_ids"] == loaded.encode(text) == ids
    assert loaded.decode(ids) == loaded.decode(ids, skip_special_tokens=True) == text


def test_a_template_of_ones_own_may_name_symbols(loaded: Any, models: dict[str, Tokenizer]) -> None:
    start, end = (models["bpe with symbols"].processor.piece_to_id(f"<|im_{side}|>") for side in ("start", "end"))
    ids = loaded("<|im_start|>学<|im_end|>", split_special_tokens=False)["input_ids"]
    assert (ids[0], ids[-1], len(ids)) == (start, end, 3)


def test_saved_by_transformers_it_stays_equal(loaded: Any, models: dict[str, Tokenizer], tmp_path: Path) -> None:
    loaded.save_pretrained(tmp_path / "saved")
    again = open_transformers(tmp_path / "saved").backend
    for text in (EOD_PIECE, "<|im_end|><n>学", *documents(5)):
        assert again(text)["input_ids"] == models["bpe with symbols"].encode(text)


def test_unigram_as_it_was_trained_is_refused(tmp_path: Path) -> None:
    model = train_asterisks()
    texts = [text[:size] + "*****" for text in documents(20) for size in range(1, 40)]
    given = [Document(f"document {number}", text) for number, text in enumerate(texts)]
    refusal = r"other ids for \d+ of 780 documents.*document \d+, token \d+ of .*float32"
    with pytest.raises(ExportError, match=refusal) as raised:
        export(write(tmp_path / "trained.model", model), given, tmp_path / "hf", num_documents=780)
    assert "*" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["trained.model"]
    export(write(tmp_path / "grid.model", on_grid(model)), given, tmp_path / "hf", num_documents=780)
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == FILES


def test_a_wrong_conversion_is_refused(
    models: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(tokenizer: Tokenizer) -> dict[str, Any]:
        found = tokenizer_json(tokenizer)
        found["model"]["merges"].reverse()
        return found

    monkeypatch.setattr(folder, "tokenizer_json", wrong)
    with pytest.raises(ExportError, match="bug of the export"):
        export(models["bpe"], FEW, tmp_path / "hf", num_documents=30)
    assert list(tmp_path.iterdir()) == []


def test_a_trial_text_alone_is_enough_to_refuse(
    models: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_added(tokenizer: Tokenizer) -> dict[str, Any]:
        token = {"id": tokenizer.eod, "content": EOD_PIECE, "single_word": False, "lstrip": False, "rstrip": False}
        return tokenizer_json(tokenizer) | {"added_tokens": [token | {"normalized": False, "special": True}]}

    monkeypatch.setattr(folder, "tokenizer_json", with_added)
    monkeypatch.setattr(folder, "trial_documents", lambda tokenizer: [Document("trial text name 1", EOD_PIECE)])
    with pytest.raises(
        ExportError, match=r"tokenizers .* other ids for 1 of 1 trial texts .*; the first is trial text name 1"
    ):
        export(models["bpe"], FEW, tmp_path / "hf", num_documents=30)
    assert list(tmp_path.iterdir()) == []


def test_other_ids_of_symbols_are_refused(
    models: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models["bpe"], "eod", 5)
    with pytest.raises(ExportError, match="control symbols"):
        export(models["bpe"], FEW, tmp_path / "hf", num_documents=30)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("text")
    for part in range(3):
        pq.write_table(pa.table({"text": documents(20, 20 * part)}), found / f"part-{part}.parquet")
    return found


def test_the_command(
    models: dict[str, Tokenizer], text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "hf"
    words = ["export", str(models["bpe"].path), "--out", str(out), "--text", str(text)]
    assert main(words) == 2
    assert "60 documents, and equality is to be shown on 10,000" in capsys.readouterr().err
    assert list(out.parent.iterdir()) == []
    assert main([*words, "--documents", "0"]) == 2
    assert main([*words, "--documents", "50"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert printed.err.count("equal ids and texts on 50 documents") == 2
    assert json.loads((out / "tokenizer.json").read_text())["model"]["type"] == "BPE"
    assert main([*words, "--documents", "50"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*words[:3], "s3://bucket/hf", *words[4:]]) == 2


def test_a_library_that_is_not_there(
    models: dict[str, Tokenizer], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(proof, "find_spec", lambda name: None if name == "transformers" else name)
    assert main(["export", str(models["bpe"].path), "--out", str(tmp_path / "hf"), "--text", str(text)]) == 1
    assert "export needs transformers. Run: pip install 'wenhai[hf]'" in capsys.readouterr().err


def test_documents_come_from_all_files_in_turn(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenizer.documents.BATCH_ROWS", 5)
    found = list(read_files(text_files([str(text)])))
    assert [name.rsplit("-", 1)[1] for name, _ in found[:20:5]] == ["0.parquet", "1.parquet", "2.parquet", "0.parquet"]
    assert sorted(text for _, text in found) == sorted(documents(60))
    assert len({name for name, _ in found}) == 60


@pytest.mark.slow
def test_real_text(test_data: Path, tmp_path: Path) -> None:
    """10,000 documents of all kinds, on BPE and on Unigram, both trained on them."""
    from tokenizer.config import TokenizerConfig
    from tokenizer.train import train

    given = list(_real(test_data))[::2][:10_000]
    texts = [text for _, text in given]
    for kind in ("bpe", "unigram"):
        model = train(texts[::5], TokenizerConfig.model_validate({"model_type": kind, "vocab_size": 6000}))
        (tmp_path / f"{kind}.model").write_bytes(on_grid(model) if kind == "unigram" else model)
        export(Tokenizer(tmp_path / f"{kind}.model"), given, tmp_path / kind, num_documents=10_000)


def _real(data: Path) -> Iterator[Document]:
    for path in (*sorted((data / "text").glob("*.jsonl")), *sorted((data / "labelled").glob("*.jsonl"))):
        with open(path, encoding="utf-8") as lines:  # `splitlines` would cut at U+2028, too
            for number, line in enumerate(lines):
                yield Document(f"{path.name} {number}", json.loads(line)["text"])
