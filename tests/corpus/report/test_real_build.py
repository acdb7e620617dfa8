"""The report over a build by the real stages: formats that the toy build imitates must not drift apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus.build import stages
from corpus.document import read_table
from corpus.engine.run import current, run_stages
from corpus.recipe import load_recipe
from corpus.report import ledger
from corpus.report.explain import explain
from corpus.report.html import write_report
from corpus.report.metadata import gather
from corpus.report.summary import funnel
from corpus.report.verify import verify
from corpus.sources.packing import find_sources

ANALECTS = (
    "子曰：“学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？”",
    "有子曰：“其为人也孝弟，而好犯上者，鲜矣；不好犯上而好作乱者，未之有也。君子务本，本立而道生。”",
    "曾子曰：“吾日三省吾身：为人谋而不忠乎？与朋友交而不信乎？传不习乎？”",
    "子曰：“道千乘之国，敬事而信，节用而爱人，使民以时。弟子入则孝，出则弟，谨而信，泛爱众，而亲仁。”",
    "子贡曰：“贫而无谄，富而无骄，何如？”子曰：“可也。未若贫而乐，富而好礼者也。”",
)
FOOTER = "责任编辑：子夏"


def documents() -> list[dict[str, str]]:
    whole = "\n".join(ANALECTS)
    texts = {
        "good": whole + "\n" + FOOTER,
        "copy": whole,
        "other": "\n".join(reversed(ANALECTS[:4])) + "电话13800138000。",
        "short": "学而。",
        "repeated": "乐乎" * 300,
    }
    return [
        {"url": f"https://{name}.example/a?b={name}", "title": "学而", "text": text} for name, text in texts.items()
    ]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("real")
    lines = [json.dumps(document, ensure_ascii=False).encode() for document in documents()]
    (folder / "pages.jsonl").write_bytes(b"\n".join([*lines, b'{"text": "half']) + b"\n")
    recipe = load_recipe("web_zh", ["sources.max_error_ratio=1"])
    run_stages(
        stages(recipe, find_sources(recipe.sources, [str(folder / "pages.jsonl")])), str(folder / "out"), workers=0
    )
    return str(folder / "out")


def test_the_funnel_adds_up(real: str) -> None:
    summary = funnel(real)
    assert summary.breaches == ()
    assert summary.documents_in == 6
    assert sum(summary.errors.values()) == 1
    assert summary.duplicates == {"dedup.exact": 1}
    assert summary.documents_kept == 6 - 1 - 1 - sum(summary.filtered.values())
    assert summary.filtered["length.num_chars"] == 1
    assert verify(real) == []


def test_every_document_is_explained(real: str) -> None:
    ends = {}
    for document in documents():
        (found,) = ledger.find(real, document["url"])
        ends[document["url"].split(".")[0].removeprefix("https://")] = ledger.history(real, found)[-1]
    assert ends["short"].values["rule"] == "length.num_chars" and ends["short"].values["bound"] == "min"
    assert ends["repeated"].what == "dropped"
    assert ends["other"].what == "kept"
    assert sorted(ends[name].what for name in ("good", "copy")) == ["dropped", "kept"]
    twins = explain(real, documents()[0]["url"]) + explain(real, documents()[1]["url"])
    assert (
        twins.count("exact duplicate") == 1
        and ", which is better by " in twins
        and "edited: boilerplate.editor at line 6" in twins
    )


def test_the_broken_line_is_explained_by_its_place(real: str) -> None:
    [file] = current(real, "extract").files("fates")
    [fate] = read_table(Path(file.url)).to_pylist()
    assert fate["rule"].startswith("error:") and fate["place"].startswith("pages.jsonl:offset ")
    assert fate["rule"] in explain(real, fate["place"])


def test_the_report_has_statistics_limits_and_samples(real: str) -> None:
    facts = gather(real)
    judged = {one.name: one for one in facts.measured.distributions if one.limits}
    assert judged["length.num_chars.2"].num_below == 1 and judged["length.num_chars.2"].limits["min"] > 6
    assert any(one.limit.key == "length.num_chars" and one.dropped and one.text == "学而。" for one in facts.samples)
    assert facts.clusters == [("2", 1, 2)]
    page = Path(write_report(real)).read_text(encoding="utf-8")
    assert "boilerplate.editor" in page and "13800138000" not in page
