"""Several sources in a build: files, field maps, names, filters and weights of each; what is refused before work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpus.__main__ import main
from corpus.build import stages
from corpus.engine import run as engine_run
from corpus.engine.errors import UsageError
from corpus.engine.run import current, run_stages
from corpus.recipe import load_recipe
from corpus.report.ledger import rules
from corpus.sources.packing import find_sources, key_of
from tests.corpus.texts import document

RECIPE = """
extends = "web_zh"
[input]
task_bytes = 4000
[[sources]]
name = "news"
path = "news"
text = ["content", "body"]
[[sources]]
name = "verse"
path = ["verse/*.json"]
text = "data.text"
filter = "verse.toml"
weight = 2.0
[[sources]]
path = "more/**/*.txt"
name = { path = "^([^/]+)/" }
[sources.filter.length]
num_chars = { min = 3 }
"""
VERSE = "[filter.length]\nnum_chars = { min = 5 }\n[filter.characters]\nhan_ratio = { min = 0.5 }\n"
SHORT = "学而时习之，不亦说乎？"


def build(folder: Path, recipe: str = RECIPE, words: Sequence[str] = ()) -> int:
    (folder / "r.toml").write_text(recipe)
    out = str(folder / "out")
    return main(["run", "--recipe", str(folder / "r.toml"), "--out", out, "--workers", "0", "--quiet", *words])


def build_front(folder: Path, recipe: str) -> None:
    """The stages up to the signatures."""
    (folder / "r.toml").write_text(recipe)
    loaded = load_recipe(str(folder / "r.toml"))
    run_stages(stages(loaded, find_sources(loaded.sources))[:3], str(folder / "out"), workers=0)


def lines(texts: Sequence[str], field: str) -> str:
    return "\n".join(json.dumps({field: text, "id": index}, ensure_ascii=False) for index, text in enumerate(texts))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name in ("news/a", "news/b", "verse", "more/杂文"):
        (folder / name).mkdir(parents=True)
    (folder / "verse.toml").write_text(VERSE)
    (folder / "news/a/part.jsonl").write_text(lines([document(1), document(2), SHORT], "content"))
    (folder / "news/b/part.jsonl").write_text(lines([document(3), document(4)], "body"))
    (folder / "verse/tang.json").write_text(json.dumps([{"data": {"text": SHORT}}, {"data": {"text": "no Han here"}}]))
    (folder / "more/杂文/a.txt").write_text(document(5)[:40])
    assert build(folder) == 0
    return folder


def rows(out: Path, stage: str, kind: str = "data") -> list[dict[str, Any]]:
    return [row for file in current(str(out), stage).files(kind) for row in pq.read_table(file.url).to_pylist()]


def test_each_source_has_its_fields_its_name_and_its_filter(built: Path) -> None:
    kept = sorted(row["source"] for row in rows(built / "out", "text"))
    assert kept == ["news", "news", "news", "news", "verse", "杂文"]
    fates = {(row["source"], row["rule"]) for row in rows(built / "out", "filter", "fates")}
    assert fates == {("news", "length.num_chars"), ("verse", "characters.han_ratio")}
    folder = current(str(built / "out"), "filter")
    limits = rules(folder)
    assert [limit.threshold for limit in limits["length.num_chars.2"]] == [50, 200_000]
    assert [limit.name for limit in limits["characters.han_ratio.1"]] == ["characters.han_ratio.1.min"]


def test_files_that_share_a_name_are_told_apart(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [row["place"] for row in rows(built / "out", "extract", "places")]
    assert {place.split(":")[0] for place in places} == {"a/part.jsonl", "b/part.jsonl", "tang.json", "杂文/a.txt"}
    assert main(["explain", str(built / "out"), "b/part.jsonl:offset 0"]) == 0
    assert "news" in capsys.readouterr().out


def test_a_weight_is_how_often_documents_are_taken(built: Path) -> None:
    copies = {row["id"]: row["copies"] for row in rows(built / "out", "mixture", "copies")}
    for row in rows(built / "out", "text"):
        assert copies[row["id"]] == (2 if row["source"] == "verse" else 1)


def test_retune_leaves_sources_with_their_own_filter_out(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retune", str(built / "out"), "--set", "filter.length.num_chars.min=3"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("5 documents were measured") and "of their own (local, verse)" in printed


def test_plan_shows_what_would_be_read(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--recipe", str(built / "r.toml"), "--out", str(built / "new"), "--json"]) == 0
    sources = {one["source"]: one for one in json.loads(capsys.readouterr().out)["sources"]}
    assert {key: one["kinds"] for key, one in sources.items()} == {
        "news": {"jsonl": 2},
        "verse": {"json": 1},
        "local": {"text": 1},
    }
    assert [one["verdict"] for one in sources["verse"]["documents"]] == ["kept", "characters.han_ratio 0"]
    assert len(sources["news"]["documents"]) == 5 and not (built / "new").exists()


def folders_run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    ran: list[str] = []

    def count(stage: Any, task: Any, url: str) -> Any:
        ran.append(f"{stage.name}/{key_of(task.name)}")
        return run_task(stage, task, url)

    run_task = engine_run.run_task
    monkeypatch.setattr(engine_run, "run_task", count)
    return ran


def test_a_new_file_or_source_costs_its_own_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for index in range(60):
        (tmp_path / "in" / f"{index:02d}.jsonl").write_text(lines([document(3 * index + k) for k in range(3)], "text"))
    plain = '[dedup]\nrepeated_lines = "off"\ncontamination = "off"\n'  # counts of all pages change with each file
    recipe = f'extends = "web_zh"\n{plain}[input]\ntask_bytes = 30_000\n[[sources]]\npath = "in"\nname = "one"\n'
    ran = folders_run(monkeypatch)
    build_front(tmp_path, recipe)
    tasks = ran.count("extract/one")
    assert tasks > 10 and ran.count("filter/one") == ran.count("signatures/one") == tasks
    ran.clear()
    (tmp_path / "in" / "07a.jsonl").write_text(lines([document(500)], "text"))  # behind the eighth of sixty
    build_front(tmp_path, recipe)
    assert 1 <= ran.count("extract/one") <= 2 and ran.count("filter/one") <= 2 and ran.count("signatures/one") <= 2
    ran.clear()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "07.jsonl").write_text(
        lines([document(600)], "content")
    )  # as one of the first source is called
    other = '[[sources]]\npath = "two"\nname = "another"\ntext = "content"\nfilter = "books_zh"\n'
    build_front(tmp_path, recipe + other)
    assert [name for name in ran if name.startswith(("extract", "filter"))] == ["extract/another", "filter/another"]


def test_the_old_section_reads_as_one_source_and_a_list_replaces_a_list(tmp_path: Path) -> None:
    base, child = tmp_path / "base.toml", tmp_path / "child.toml"
    base.write_text('extends = "web_zh"\n[sources]\nsource = "old"\ntext_field = "body"\ntask_bytes = 7\n')
    recipe = load_recipe(str(base), ["sources.url=link", "input.shard_bytes=9"])
    (source,) = recipe.sources
    assert (source.name.default, source.text, source.url) == ("old", ("body",), ("link",))
    assert (recipe.input.task_bytes, recipe.input.shard_bytes) == (7, 9)
    child.write_text('extends = "base.toml"\n[input]\nshard_bytes = 5\n[[sources]]\nname = "new"\npath = "x/"\n')
    recipe = load_recipe(str(child), ["sources.0.text=content"])
    (source,) = recipe.sources
    assert (source.name.default, source.text, source.path) == ("new", ("content",), (str(tmp_path / "x"),))
    assert recipe.input.shard_bytes == 5
    child.write_text('extends = "base.toml"\n[sources]\nurl = "link"\n')  # tables are merged key by key
    (source,) = load_recipe(str(child)).sources
    assert (source.text, source.url) == (("body",), ("link",))
    child.write_text('[filter]\n[[sources]]\nname = "a"\npath = "x"\n[[sources]]\nname = "b"\npath = "y"\n')
    for override in ("sources.2.kind=warc", "sources.kind=warc", "sources.2=a"):
        with pytest.raises(UsageError, match="a number below 2"):
            load_recipe(str(child), [override])


def test_filters_of_sources_lie_beside_the_recipe_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/verse.toml").write_text(VERSE)
    (tmp_path / "base/words.txt").write_text("词\n")
    (tmp_path / "base/base.toml").write_text(
        'extends = "web_zh"\n[[sources]]\npath = "a"\nfilter = "verse.toml"\n'
        '[[sources]]\npath = "b"\n[sources.filter.blocklist]\nlists = ["words.txt"]\n'
    )
    (tmp_path / "child.toml").write_text('extends = "base/base.toml"\n')
    one, two = (source.filter for source in load_recipe(str(tmp_path / "child.toml")).sources)
    assert one and one.length.num_chars and one.length.num_chars.min == 5
    assert two and two.blocklist.lists == (str(tmp_path / "base/words.txt"),)


@pytest.mark.parametrize(
    ("recipe", "words", "message"),
    [
        ('[[sources]]\nname = "a"\n[[sources]]\nname = "b"\n', ["--input", "in"], "2 have no path"),
        ('[[sources]]\npath = "in"\n', ["--input", "in"], "every source of the recipe has a path"),
        ('[[sources]]\npath = "in"\nweight = 2\n', [], "a weight needs a name"),
        ('[[sources]]\npath = "in"\n[[sources]]\npath = "in/*"\n', [], "listed twice"),
        ('[[sources]]\npath = "in"\nfilter = "webzh"\n', [], "did you mean web_zh"),
        ('[[sources]]\npath = "in"\n[sources.filter.length]\nnum_chra = { min = 1 }\n', [], "num_chra: unknown key"),
        ('[[sources]]\npath = "in"\nname = "a"\n[mixture]\nsources = { b = 2.0 }\n', [], r"'b' is no source: a"),
        ('[[sources]]\npath = "in"\n[filter.blocklist]\nlists = ["none.txt"]\n', [], "none.txt"),
        ('[[sources]]\npath = "in"\n[dedup.contamination]\nfiles = ["none.jsonl"]\n', [], "none.jsonl"),
        ("sources = []\n", [], "sources: an empty list"),
        (
            '[[sources]]\npath = "in"\nname = "a"\n[[sources]]\npath = "b"\nname = "a"\nweight = 2\n',
            [],
            "a is the name of several sources",
        ),
        ('[[sources]]\npath = "s3x://bucket/*"\n', [], "cannot be listed"),
    ],
)
def test_what_would_fail_late_is_refused_before_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recipe: str,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(lines([document(1)], "text"))
    for command in ("run", "plan"):
        assert build(tmp_path, f'extends = "web_zh"\n{recipe}', words) == 2
        told = capsys.readouterr().err
        assert message.removeprefix("r") in told and "Traceback" not in told
        assert command and not list(tmp_path.glob("out/extract-*"))


def test_fields_that_find_nothing_are_refused_before_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, field in (("good", "text"), ("bad", "body")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(lines([document(1), document(2)], field))
    recipe = 'extends = "web_zh"\n[[sources]]\npath = "good"\nname = "good"\n[[sources]]\npath = "bad"\nname = "bad"\n'
    assert build(tmp_path, recipe) == 4
    told = capsys.readouterr().err
    assert "source bad" in told and "fields: body, id" in told and "a.jsonl:offset 0" in told
    assert not list(tmp_path.glob("out/extract-*"))
    assert build(tmp_path, recipe + 'text = "body"\n') == 0


def test_a_source_stops_the_build_for_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = folders_run(monkeypatch)
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        rows = [json.dumps({"text": document(index)}) for index in range(40)]
        (tmp_path / name / "a.jsonl").write_text("\n".join(rows[:20] + (["{"] * 6 if name == "bad" else rows[20:])))
    recipe = 'extends = "web_zh"\n[[sources]]\npath = "good"\nname = "good"\n[[sources]]\npath = "bad"\nname = "bad"\n'
    assert build(tmp_path, recipe) == 4  # 6 of 26 of the one, 6 of 66 of all
    assert "6 of 26 records in 1 files of source bad" in capsys.readouterr().err
    assert build(tmp_path, recipe + "max_error_ratio = 0.5\n") == 0
    assert sorted(name for name in ran if name.startswith("extract")) == ["extract/bad", "extract/good"]  # each once


def test_sources_of_one_name_have_keys_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").touch()
    configs = [
        *load_recipe("web_zh").sources,
        load_recipe("web_zh").sources[0].model_copy(update={"path": (str(tmp_path / "b.txt"),)}),
    ]
    found = find_sources(configs, [str(tmp_path / "a.txt")])
    assert [(source.key, [file.label for file in source.files]) for source in found] == [
        ("local", ["a.txt"]),
        ("local_2", ["b.txt"]),
    ]
