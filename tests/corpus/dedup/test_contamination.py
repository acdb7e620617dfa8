"""Documents that contain an evaluation item are found whatever its script and width, and the ledger names the item."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from corpus.__main__ import main
from corpus.dedup.config import ContaminationConfig, DedupConfig, EvaluationSet
from corpus.dedup.contamination import built_in
from corpus.dedup.contamination.overlap import MAX_ITEMS, build_index, find, load_index
from corpus.dedup.contamination.stage import RULE, ContaminationStage
from corpus.dedup.near.signing import SignaturesStage
from corpus.engine import durable
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from tests.corpus.dedup.build import Feed, Result
from tests.corpus.texts import document, write_records
from tools import evaluation_sets

ITEM = "这趟列车晚点了四十分钟，站台上的人却没有一个抱怨，因为大家都知道山里下了大雪。"
TRADITIONAL = "這趟列車晚點了四十分鐘，站臺上的人卻沒有一個抱怨，因為大家都知道山裡下了大雪。"
OTHER = "图书馆的管理员把借书卡按照颜色排好，又把它们全部打乱，说这样才有意思。"


@pytest.fixture
def items(tmp_path: Path) -> Path:
    lines = [{"id": 7, "sentence": ITEM, "label": "news"}, {"id": 8, "pair": {"a": OTHER, "b": ["短句"]}}]
    return write_records(tmp_path / "tnews" / "test.json", lines)


def column(*texts: str) -> pa.Array:
    return pa.array(texts, pa.large_string())


def clean(path: Path, items: Path | None, texts: list[str], **values: Any) -> Result:
    config = ContaminationConfig(files=(str(items),) if items else (), **values)
    stages = [
        Feed((tuple(texts[:2]), tuple(texts[2:]))),
        ContaminationStage(config),
        SignaturesStage(DedupConfig(), "contamination"),
    ]
    return Result(run_stages(stages, str(path / "build"), workers=0))


def test_an_item_inside_a_page_is_removed_and_named(tmp_path: Path, items: Path) -> None:
    texts = [document(1), document(2) + TRADITIONAL + document(3), document(4), OTHER, document(5) + ITEM[:14]]
    result = clean(tmp_path, items, texts)
    assert result.table("contamination", "data")["text"].to_pylist() == [texts[0], texts[2], texts[4]]
    fates = result.table("contamination", "fates").to_pylist()
    assert [fate["detail"] for fate in fates] == ["tnews/test.json id 7 sentence", "tnews/test.json id 8 pair.a"]
    assert [(fate["rule"], fate["bound"], fate["threshold"]) for fate in fates] == [(RULE, "max", 0.5)] * 2
    assert fates[1]["value"] == 1.0 and fates[0]["value"] > 0.9
    counts = result.counts("contamination")
    assert counts.dropped == {RULE: 2} and counts.extra == {"contaminated": 2, "items": 4, "items_too_short": 2}
    measured = result.table("contamination", "statistics").to_pylist()
    assert len(measured) == 5 and 0 < measured[4][RULE] < 0.5 and measured[0][RULE] == 0
    assert result.counts("signatures").documents_in == 3


def test_flagged_documents_stay(tmp_path: Path, items: Path) -> None:
    result = clean(tmp_path, items, [document(1), ITEM], action="flag")
    assert result.counts("contamination").documents_out == 2
    assert result.counts("contamination").extra["contaminated"] == 1
    assert [row[RULE] for row in result.table("contamination", "statistics").to_pylist()] == [0.0, 1.0]


def test_the_share_is_of_different_ngrams() -> None:
    index = build_index(["a"], ["学而时习之不亦说乎"], 4)
    (match,) = find(column("无关的话", "学而时习之，学而时习之"), index, 4)
    assert match.document == 1 and match.share == pytest.approx(2 / 6)  # 学而时习 and 而时习之, of six
    assert find(column("无关的话"), index, 4) == [] == find(column(), index, 4)
    assert find(column("学而时习之"), build_index([], [], 4), 4) == []


def test_what_every_item_says_tells_nothing() -> None:
    texts = [f"请根据下面的文章回答问题{document(number, 3)}" for number in range(MAX_ITEMS + 1)]
    index = build_index([str(number) for number in range(len(texts))], texts, 10)
    assert find(column("请根据下面的文章回答问题"), index, 10) == []
    assert find(column(texts[5]), index, 10)[0].item == "5"


def test_broken_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"a": "b"}\n{"a": ', encoding="utf-8")
    with pytest.raises(WenhaiError, match=r"items\.jsonl: line 2 is not JSON"):
        load_index(tuple(list_inputs([str(path)])), 10)
    with pytest.raises(UsageError, match="matches no file"):
        ContaminationStage(ContaminationConfig(files=(str(tmp_path / "none"),))).inputs()


def test_plain_text_is_an_item_a_line(tmp_path: Path) -> None:
    path = tmp_path / "items.txt"
    path.write_text(f"{OTHER}\n{ITEM}\n", encoding="utf-8")
    index = load_index(tuple(list_inputs([str(path)])), 10)
    assert find(column(ITEM), index, 10)[0].item.endswith("items.txt line 2")


LINK = "https://news.example/2024/"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("items.txt", LINK),
        ("items.txt", f"见 {LINK} 和 www.example.com/a?b=c。"),
        ("items.txt", "2024-11-23 08:15:00 / 13"),
        ("items.jsonl", f'{{"id": 3, "url": "{LINK}", "note": ""}}'),
    ],
)
def test_items_that_are_links_or_digits_only_are_refused_with_their_place(
    tmp_path: Path, name: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(("\n" if name.endswith("txt") else f'{{"a": "{ITEM}"}}\n') + line, encoding="utf-8")
    write_records(tmp_path / "in" / "a.jsonl", [{"text": document(1)}])
    words = ["--recipe", "web_zh", "--input", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    assert main(["run", *words, "--set", f'dedup.contamination.files=["{path}"]']) == 1
    assert f"{name}:2: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_link_beside_a_text_is_not_looked_for(tmp_path: Path) -> None:
    path = write_records(tmp_path / "items.jsonl", [{"url": LINK, "text": ITEM}, {"text": f"短句 {OTHER} {LINK}"}])
    index = load_index(tuple(list_inputs([str(path)])), 10)
    assert find(column(f"原文 {LINK}"), index, 10)[0].share < 0.5
    assert len(index.names) == 3 and index.too_short == 1
    assert find(column(ITEM), index, 10)[0].share == 1


def test_an_item_of_many_documents_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = "本页面由系统自动生成请勿直接回复如有问题请联系管理员"
    (tmp_path / "items.txt").write_text(f"{template}\n{ITEM}\n", encoding="utf-8")
    texts = [document(seed, 12) + (template if seed < 11 else ITEM if seed < 21 else "") for seed in range(30)]
    write_records(tmp_path / "in" / "a.jsonl", [{"text": text} for text in texts])
    (tmp_path / "my.toml").write_text('extends = "web_zh"\n[dedup.contamination]\nfiles = ["items.txt"]\n')
    words = ["--recipe", str(tmp_path / "my.toml"), "--input", str(tmp_path / "in"), "--workers", "0"]
    assert main(["run", *words, "--out", str(tmp_path / "out")]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("contamination: ")]
    assert len(said) == 1 and "items.txt line 1 was found in 11 documents" in said[0]
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| 11 | a template? |" in page and "| 10 |  |" in page


def test_shipped_sets_are_found_and_named_without_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [document(seed, 1) for seed in range(40)]
    for name in ("agieval", "cmmlu"):
        folder = tmp_path / "sets" / name
        folder.mkdir(parents=True)
        rows = texts[:20] if name == "agieval" else texts[20:]
        (folder / "a.jsonl").write_text("".join(f'{{"question": "{row}"}}\n' for row in rows), encoding="utf-8")
    out = tmp_path / "sets.table"
    monkeypatch.setattr("sys.argv", ["x", "--folder", str(tmp_path / "sets"), "--out", str(out)])
    evaluation_sets.main()
    written = out.read_bytes()
    evaluation_sets.main()
    assert out.read_bytes() == written and texts[0].encode() not in written
    monkeypatch.setattr(built_in, "PATH", out)
    monkeypatch.setattr(built_in, "SHA256", durable.sha256_file(out))
    index = load_index.__wrapped__((), 10, ("agieval", "cmmlu"))
    found = find(column(document(99), "前言。" + texts[3] + document(98), texts[25]), index, 10)
    assert [(match.document, match.item) for match in found if match.share == 1] == [
        (1, "agieval item 4"),
        (2, "cmmlu item 5"),
    ]
    result = clean(tmp_path, None, [document(99), texts[3], texts[25]], sets=("cmmlu",), max_share=0.75)
    assert [fate["detail"] for fate in result.table("contamination", "fates").to_pylist()] == ["cmmlu item 5"]


def test_shipped_sets_go_with_files_and_change_the_fingerprint(items: Path) -> None:
    both = ContaminationConfig(files=(str(items),), sets=("c3",))
    index = load_index.__wrapped__(tuple(list_inputs(both.files)), both.ngram, both.sets)
    assert index.names[0].startswith("tnews") and index.names[-1].startswith("c3 item ") and index.sizes[-1] >= 4
    assert find(column(ITEM), index, 10)[0].item == "tnews/test.json id 7 sentence"
    assert ContaminationStage(both).config() != ContaminationStage(ContaminationConfig(files=both.files)).config()
    assert ContaminationStage(ContaminationConfig(sets=("c3",))).inputs() == ()


@pytest.mark.parametrize(
    ("values", "words"), [({}, "files = "), ({"sets": ("c3",), "ngram": 13}, "10-grams"), ({"sets": ("ceval",)}, "c3")]
)
def test_what_sets_cannot_do_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ContaminationConfig(**values)


def test_the_shipped_table_is_whole_and_small() -> None:
    sets = get_args(EvaluationSet)
    names, hashes, owners = built_in.read_sets(sets)
    assert len(names) > 19_000 and len(hashes) == len(owners) == 8 * len(names) and owners[-1] == len(names) - 1
    assert built_in.PATH.stat().st_size < 2_000_000
    stems = [
        "以下哪项如果为真，最能削弱上述论证？",
        "男的和女的最可能是什么关系？",
        "如果以上陈述为真，以下哪项必然为真？",
    ]
    index = load_index.__wrapped__((), 10, sets)
    assert not find(column(*(f"今天聊到一道题：{stem}大家都说难。" for stem in stems)), index, 10)
