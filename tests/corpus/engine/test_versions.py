"""Another version of a package makes another folder, or is refused by name; it is never mixed in silence."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from corpus.engine import ray_executor, versions
from corpus.engine.errors import WenhaiError
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Output, Task
from corpus.engine.storage import File
from corpus.extract import ExtractConfig
from corpus.sources.stage import ExtractStage
from tests.corpus.engine.toy import Joined, Lines, text_files
from tokenizer.config import TokenizerConfig
from tokenizer.encode import TokensStage
from tokenizer.sources import SourcesStage
from tokenizer.train import TokenizerStage


def install(patch: pytest.MonkeyPatch, **other: str) -> None:
    """Other versions of some packages, for whoever asks."""
    real = versions.version_of
    for module in ("corpus.engine.versions", "corpus.sources.stage", "tokenizer.train", "tokenizer.encode"):
        patch.setattr(f"{module}.version_of", lambda package: other.get(package) or real(package))


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return text_files(tmp_path / "in", (f"第{index}卷之文" for index in range(3)))


def test_one_folder_is_written_by_one_version(
    files: tuple[File, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = str(tmp_path / "out"), "0.1.2"
    with pytest.raises(WenhaiError, match="1 of 3 tasks failed"):
        run_stages([Lines(files, fault="00001:error")], out, workers=0)
    with monkeypatch.context() as patch:
        install(patch, pyarrow=other)
        here = versions.versions_here()["pyarrow"]
        assert here == other
        with pytest.raises(WenhaiError) as refused:
            run_stages([Lines(files)], out, workers=0)
    known = versions.version_of("pyarrow")
    assert f"pyarrow {known} (not {other})" in str(refused.value) and "remove the folder" in str(refused.value)
    [folder] = (tmp_path / "out").glob("lines-*")
    assert json.loads((folder / "stage.json").read_text())["written_with"]["pyarrow"] == known
    run_stages([Lines(files)], out, workers=0)  # with the versions that it was begun with
    with monkeypatch.context() as patch:
        install(patch, pyarrow=other)
        run_stages([Lines(files), Joined()], out, workers=0)  # it is complete, and needs no new work
        assert [folder] == list((tmp_path / "out").glob("lines-*"))
        ran: list[str] = []
        real = Lines.run

        def noted(stage: Lines, task: Task, output: Output) -> Counts:
            ran.append(task.name)
            return real(stage, task, output)

        patch.setattr(Lines, "run", noted)
        run_stages([Lines(files[:2])], out, workers=0)  # nothing of another version is taken over
        assert ran == ["00000", "00001"]


def test_a_folder_without_finished_tasks_takes_the_version_of_today(
    files: tuple[File, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WenhaiError, match="tasks failed"):
        run_stages([Lines(files[:1], fault="00000:error")], str(tmp_path / "out"), workers=0)
    install(monkeypatch, pyarrow="0.1.2")
    run_stages([Lines(files[:1])], str(tmp_path / "out"), workers=0)
    [recipe] = (tmp_path / "out").glob("lines-*/stage.json")
    assert json.loads(recipe.read_text())["written_with"]["pyarrow"] == "0.1.2"


def test_a_machine_with_another_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    witness = ray_executor.Witness("code")
    monkeypatch.setattr(ray_executor, "code_digest", lambda: "code")
    assert witness.missing() == ""
    known = versions.version_of("resiliparse")
    install(monkeypatch, resiliparse="0.1.2")
    assert f"has resiliparse 0.1.2 (not {known})" in witness.missing()
    monkeypatch.setattr("platform.python_version", lambda: "3.9.9")
    monkeypatch.setattr("unicodedata.unidata_version", "9.0.0")
    assert "Python 3.9.9 (not 3." in witness.missing() and "Unicode data 9.0.0 (not " in witness.missing()
    assert versions.differences({"a": "1"}, {"b": "2"}) == "a 1 (not none), b none (not 2)"
    assert versions.differences({"a": "1"}, {"a": "1"}) == ""


def test_all_that_is_shipped_counts_as_code() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())
    shipped = {name.removeprefix("*") for name in project["tool"]["setuptools"]["package-data"]["*"]}
    there = {
        path.suffix
        for package in ray_executor.PACKAGES
        for path in Path(package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped | there <= ray_executor.CODE_SUFFIXES


def test_what_decides_text_is_in_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    jieba, scripts = TokenizerConfig(segmentation="jieba"), TokenizerConfig(traditional_ratio=0.5)
    stages = {
        "resiliparse": ExtractStage(()),
        "lxml": ExtractStage((), extraction=ExtractConfig.model_construct(backend="trafilatura")),
        "sentencepiece": TokenizerStage(TokenizerConfig()),
        "jieba": TokenizerStage(jieba),
    }
    before = {name: stage.config() for name, stage in stages.items()}
    encoding, weighing = TokensStage(TokenizerConfig()).config(), SourcesStage(scripts).config()
    assert "lxml" not in before["resiliparse"]["libraries"] and "jieba" not in before["sentencepiece"]
    assert "scripts" in weighing and "scripts" not in SourcesStage(TokenizerConfig()).config()
    for name, stage in stages.items():
        with monkeypatch.context() as patch:
            install(patch, **{name: "0.1.2"})
            assert stage.config() != before[name], name
        with monkeypatch.context() as patch:
            install(patch, pyarrow="0.1.2", numpy="0.1.2")  # these change the encoding of files only
            assert stage.config() == before[name], name
    with monkeypatch.context() as patch:
        install(patch, sentencepiece="0.1.2")
        assert TokensStage(TokenizerConfig()).config() != encoding


def test_a_dictionary_counts_by_its_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for name, words in (("dict_a", "学"), ("dict_b", "学"), ("dict_c", "而")):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"# {name}")
        (package / "dict.txt").write_text(words)
        digests.append(versions.data_digest(name, ".txt"))
    assert digests[0] == digests[1] != digests[2]
    assert versions.data_digest("no_such_module_here", ".txt") == versions.data_digest("dict_a", ".bin")
