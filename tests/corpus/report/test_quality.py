"""A quality model in the reading of a build: the n-grams behind a score, its tenths in ledger and report."""

from __future__ import annotations

import csv
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from corpus.__main__ import main
from corpus.document import read_table
from corpus.engine.stage import Folder
from corpus.filters.quality.model import Model, load_model
from corpus.quality import training
from corpus.report.distributions import BUCKETS
from corpus.report.examples import A_BUCKET
from corpus.report.explain import explain, explain_json
from corpus.report.html import render_html
from corpus.report.language import CHINESE, ENGLISH
from corpus.report.markdown import render_markdown
from corpus.report.metadata import gather
from tests.corpus.filters.quality.test_model import NAMES, advertisement, classes, scrambled
from tests.corpus.texts import document, write_records
from tests.html_page import Page

MAIL = "wangxiaoming@example.com"
RECIPE = """\
[filter.quality]
model = "quality.model"
score = { min = 0.5 }

[filter.length]
num_chars = { min = 10, max = 1_000_000 }
"""
FLAT = 25.0  # of the temperature: scores in many tenths


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build whose filter had a model: good texts, advertisements with an address, one text longer than is read."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("scored")
    options = training.Options(bits=14)
    made, _ = training.train(training.gather(classes(150), options), NAMES, options)
    flat = made.header.model_copy(update={"temperature": FLAT * made.header.temperature})
    Model(flat, made.weights).save(folder / "quality.model")
    (folder / "scored.toml").write_text(RECIPE)
    texts = [document(seed) + f"联系{MAIL}。" * (seed % 4 == 0) for seed in range(9_000, 9_024)]
    texts += [advertisement(seed) + f" 邮箱 {MAIL}" for seed in range(9_000, 9_012)]
    texts += [document(seed) + advertisement(seed) for seed in range(9_030, 9_042)]
    texts += [
        document(9_060)[:9],
        "责任编辑：子夏\n" + scrambled(9_050),
        "\n".join(document(seed) for seed in range(9_100, 9_400)),
    ]
    write_records(
        folder / "a.jsonl", ({"url": f"https://a.example/{at}", "text": text} for at, text in enumerate(texts))
    )
    words = ["--recipe", str(folder / "scored.toml"), "--workers", "0", "--quiet"]
    assert main(["run", *words, "--input", str(folder / "a.jsonl"), "--out", str(folder / "out")]) == 0
    return folder / "out"


def ends(out: Path) -> dict[str, list[dict[str, object]]]:
    """Documents that the filter kept and dropped, with what it measured."""
    (file,) = Folder.open(str(next(out.glob("filter-*")))).files("statistics")
    rows = read_table(Path(file.url)).to_pylist()
    shard = Path(file.url).stem
    rows = [row | {"key": f"{shard}:{row['row']}"} for row in rows]
    return {"kept": [row for row in rows if row["kept"]], "dropped": [row for row in rows if not row["kept"]]}


@pytest.mark.parametrize("end", ["kept", "dropped"])
def test_explain_names_what_the_model_saw(scored: Path, end: str) -> None:
    rows = ends(scored)[end]
    assert len(rows) > 10
    for row in rows:
        (told,) = explain_json(str(scored), str(row["key"]))
        (saw,) = (event["values"] for event in told["events"] if event["what"] == "scored")
        assert saw["classes"]["high"] == pytest.approx(row["quality.score"]) and list(saw["classes"]) == list(NAMES)
        assert sum(saw["classes"].values()) == pytest.approx(1)
        for side, sign in (("for", 1), ("against", -1)):
            nats = [sign * one["nats"] for one in saw[side]]
            assert 1 <= len(nats) <= 5 and min(nats) > 0 and nats == sorted(nats, reverse=True)
            assert len({one["ngram"] for one in saw[side]}) == len(nats)
    text = explain(str(scored), str(rows[0]["key"]))
    assert re.search(r"the model saw high 0\.\d{3}, low 0\.\d{3}, advertisement 0\.\d{3}\n", text)
    assert re.search(r"  for high, nats: \S+ \+\S+( \(\d+ times\))? · ", text) and "  against high, nats: " in text
    assert sum("of the first 65,536 bytes" in explain(str(scored), str(row["key"])) for row in rows) == (end == "kept")


def test_what_is_personal_is_no_reason(scored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpus.report.model_view.SHOWN", 10_000)
    rows = [row for row in ends(scored)["dropped"] if row["edits"] and "email" in str(row["edits"])]
    assert rows
    for row in rows:
        (told,) = explain_json(str(scored), str(row["key"]))
        (saw,) = (event["values"] for event in told["events"] if event["what"] == "scored")
        ngrams = {one["ngram"] for side in ("for", "against") for one in saw[side]}
        assert "微信" in ngrams and not {"wan", "ang", "ngx", "@ex", "g@e", "<em", "l>"} & ngrams


def test_a_model_that_is_gone_or_another_is_told(scored: Path, tmp_path: Path) -> None:
    path, moved = scored.parent / "quality.model", tmp_path / "moved"
    key, whole = str(ends(scored)["kept"][0]["key"]), load_model(str(path))
    shutil.move(path, moved)
    try:
        load_model.cache_clear()
        text = explain(str(scored), key)
        assert "cannot be told: the build's model is not there any more. filter.quality.model: " in text
        assert "kept: text shard" in text
        Model(whole.header.model_copy(update={"seed": whole.header.seed + 1}), whole.weights).save(path)
        load_model.cache_clear()
        text = explain(str(scored), key)
        assert "quality.model is another one (sha256 " in text and whole.digest[:12] in text
        copy = shutil.copytree(scored, tmp_path / "out")
        (copy / "recipe.json").unlink()
        assert "cannot be told: the build's model is not there any more.\n" in explain(str(copy), key)
    finally:
        shutil.move(moved, path)
        load_model.cache_clear()
    assert "the model saw" in explain(str(scored), key)


def test_without_a_model_nothing_is_said(out: str) -> None:
    assert "model" not in explain(out, "00000-00:0")
    facts = gather(out)
    assert not facts.measured.scores and not facts.scored
    for page in (render_html(facts, ENGLISH), render_html(facts, CHINESE), render_markdown(facts)):
        assert 'id="quality"' not in page and "## Quality" not in page


def test_the_ledger_groups_by_tenths(scored: Path, out: str, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(*words: str) -> list[dict[str, str]]:
        assert main(["ledger", *words, "--format", "csv"]) == 0
        return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    groups = ask(str(scored), "--group", "score")
    measured = {one.name: one.documents for one in gather(str(scored)).measured.scores if one.documents}
    assert {row["score"]: int(row["documents"]) for row in groups} == measured and len(measured) > 2
    rows = ask(str(scored), "--columns", "score,rule", "--where", "score < 0.5")
    assert (
        rows and {row["rule"] for row in rows} == {"quality.score"} and all(float(row["score"]) < 0.5 for row in rows)
    )
    both = ask(str(scored), "--group", "score,rule", "--where", "score >= 0.9")
    assert {row["score"] for row in both} == {"0.9-1.0"}
    (row,) = ask(out, "--group", "score")  # no model
    assert row["score"] == "not measured"
    assert {row["score"] for row in ask(out)} == {""}


@pytest.mark.parametrize(
    ("score", "group"),
    [(0.0, "0.0-0.1"), (0.1, "0.1-0.2"), (0.3, "0.3-0.4"), (0.6, "0.6-0.7"), (0.7, "0.7-0.8"), (1.0, "0.9-1.0")],
)
def test_a_tenth_begins_at_its_first_number(score: float, group: str) -> None:
    import numpy as np

    from corpus.report.distributions import TENTHS
    from corpus.report.queries.ask import GROUPED, database

    with database() as (connection, _):
        assert connection.execute(f"SELECT {GROUPED['score']} FROM (SELECT ? AS score)", [score]).fetchall() == [
            (group,)
        ]
    assert BUCKETS[int(np.searchsorted(TENTHS, score, "right"))] == group
    assert BUCKETS[int(np.searchsorted(TENTHS, np.nan, "right"))] == "not measured"


def test_the_report_has_a_table_and_samples_of_each_tenth(scored: Path) -> None:
    facts = gather(str(scored))
    assert [one.name for one in facts.measured.scores] == list(BUCKETS)
    documents = sum(one.documents for one in facts.measured.scores)
    assert documents == facts.measured.documents
    assert sum(one.kept for one in facts.measured.scores) == facts.measured.kept
    assert list(facts.scored) == [one.name for one in facts.measured.scores if one.documents]
    for name, samples in facts.scored.items():
        low = float(name.partition("-")[0])
        assert all(low <= one.value <= low + 0.1 + 1e-9 for one in samples) and len(samples) <= 2 * A_BUCKET
        assert [one.dropped for one in samples] == sorted((one.dropped for one in samples), reverse=True)
        assert all(one.dropped for one in samples) or low >= 0.5
    assert len(facts.scored["0.9-1.0"]) == A_BUCKET + 1 and facts.scored["0.9-1.0"][0].dropped  # too short
    pages = [render_html(facts, say) for say in (ENGLISH, CHINESE)]
    for page in pages:
        Page(page).check(num_scripts=2)
        section = page.partition('<h2 id="quality">')[2].partition("<h2")[0]
        assert section.count("<details") == len(facts.scored) and MAIL not in section
        assert all(one.name in section for samples in facts.scored.values() for one in samples)
        assert section.count("<tr>") >= 1 + len(BUCKETS) and "data-sample" not in section
    assert "质量" in pages[1] and "not measured" not in pages[1] and "## Quality" in render_markdown(facts)
    empty = replace(facts, measured=replace(facts.measured, scores=[]), scored={})
    assert 'id="quality"' not in render_html(empty)


def test_a_model_of_a_source_alone(scored: Path, tmp_path: Path) -> None:
    shutil.copy(scored.parent / "quality.model", tmp_path / "own.model")
    source = '[[sources]]\npath = "{0}.jsonl"\nname = "{0}"\n'
    own = 'filter = { quality = { model = "own.model" } }\n'
    (tmp_path / "r.toml").write_text(
        source.format("a") + own + source.format("b") + "[filter.length]\nnum_chars.min = 5\n"
    )
    for name in "ab":
        url = f"https://{name}.example/"
        write_records(tmp_path / f"{name}.jsonl", [{"url": url, "text": document(1) + f"\x1b[31m{name}"}])
    out = str(tmp_path / "out")
    assert main(["run", "--recipe", str(tmp_path / "r.toml"), "--workers", "0", "--quiet", "--out", out]) == 0
    assert "the model saw high " in explain(out, "https://a.example/")
    assert "model" not in explain(out, "https://b.example/")
