"""Site chrome goes, articles stay, and neither copies of a page nor the split into shards change what is chrome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpus.dedup.config import DedupConfig, RepeatedLinesConfig
from corpus.dedup.near.signing import SignaturesStage
from corpus.dedup.passages.line_stages import GATE, LineCountsStage, LineKeysStage, RepeatedLinesStage
from corpus.dedup.passages.repeated_lines import (
    COUNT_DTYPE,
    SKETCH,
    count_documents,
    documents_of,
    site_keys,
    smallest,
)
from corpus.dedup.records import NUM_SLOTS, RECORD_DTYPE, Array, sections
from corpus.engine.run import run_stages
from corpus.engine.storage import File
from tests.corpus.dedup.build import Feed, Result
from tests.corpus.texts import document

HEADER, FOOTER = "首页 新闻 国际 财经", "关于我们 | 联系方式 | 广告服务"


def page(number: int) -> str:
    return f"{HEADER}\n第{number}篇\n{document(number, 60)}\n{FOOTER}"


def cut(path: Path, shards: Sequence[Sequence[str]], **values: Any) -> Result:
    lines = RepeatedLinesConfig(**values)
    stages = [
        Feed(tuple(map(tuple, shards))),
        LineKeysStage(lines),
        LineCountsStage(lines),
        RepeatedLinesStage(lines),
        SignaturesStage(DedupConfig(repeated_lines=lines), "repeated_lines"),
    ]
    return Result(run_stages(stages, str(path), workers=0))


def texts(result: Result) -> list[str]:
    return list(result.table("repeated_lines", "data")["text"].to_pylist())


def test_chrome_goes_and_is_recorded(tmp_path: Path) -> None:
    pages = [page(number) for number in range(40)]
    result = cut(tmp_path, [pages[:25], [], pages[25:]])
    assert texts(result) == [f"第{number}篇\n{document(number, 60)}" for number in range(40)]
    row = result.table("repeated_lines", "statistics").to_pylist()[3]
    last = len(pages[3].split("\n"))
    assert [edit["line"] for edit in row["edits"]] == [1, last] and row["edits"][0]["kind"] == "repeated_line"
    assert row[GATE] == len(texts(result)[3]) and row["row"] == 7
    counts = result.counts("repeated_lines")
    assert counts.extra["edited.repeated_line"] == 80 and counts.documents_out == 40
    assert result.counts("signatures").bytes_in == counts.bytes_out < counts.bytes_in


def test_width_and_script_do_not_hide_a_line(tmp_path: Path) -> None:
    pages = [page(number) for number in range(20)]
    pages[::2] = [text.replace(HEADER, "首頁　新聞　國際　財經") for text in pages[::2]]
    assert not any("新" in text.split("\n")[0] for text in texts(cut(tmp_path, [pages])))


def test_rare_lines_and_short_shares_stay(tmp_path: Path) -> None:
    pages = [page(number) for number in range(9)] + [document(number, 60) for number in range(100, 160)]
    assert texts(cut(tmp_path / "few", [pages])) == pages
    assert texts(cut(tmp_path / "share", [pages], min_documents=5)) == pages  # 9 of 69 is below a fifth
    assert texts(cut(tmp_path / "low", [pages], min_documents=5, max_share=0.1))[0].startswith("第0篇")


def test_what_a_page_repeats_is_structure(tmp_path: Path) -> None:
    pages = ["\n".join(f"注意事项\n{document(3 * number + part, 20)}" for part in range(3)) for number in range(20)]
    pages = [f"标题{number}\n======\n{text}" for number, text in enumerate(pages)]  # and so is a rule
    assert texts(cut(tmp_path, [pages])) == pages


def test_copies_of_a_page_count_once(tmp_path: Path) -> None:
    copied = "\n".join(document(100 + line, 20)[:40] for line in range(8))
    pages = [copied] * 30 + [document(number, 60) for number in range(1, 20)]
    assert texts(cut(tmp_path, [pages[:20], pages[20:]], max_removed_ratio=1.0)) == pages


def test_a_page_of_chrome_is_left_and_a_short_one_is_dropped(tmp_path: Path) -> None:
    chrome = "\n".join(document(1000 + line, 20)[:40] for line in range(30))  # lines that every page has
    stubs = [f"{chrome}\n{document(2000 + number, 20)[:100]}" for number in range(20)]
    result = cut(tmp_path / "left", [stubs], max_removed_ratio=0.5)
    assert texts(result) == stubs and result.counts("repeated_lines").extra["left_alone"] == 20
    result = cut(tmp_path / "cut", [stubs], max_removed_ratio=1.0, min_left=10_000)
    assert texts(result) == [] and result.counts("repeated_lines").dropped == {GATE: 20}
    fate = result.table("repeated_lines", "fates").to_pylist()[0]
    assert (fate["rule"], fate["bound"], fate["threshold"]) == (GATE, "min", 10_000.0) and fate["value"] < 10_000


def test_the_split_changes_nothing(tmp_path: Path) -> None:
    pages = [page(number) for number in range(30)] + [document(number, 60) for number in range(100, 120)]
    whole = texts(cut(tmp_path / "whole", [pages]))
    split = texts(cut(tmp_path / "split", [pages[i : i + 7] for i in range(0, 50, 7)]))
    assert split == whole


def test_a_sketch_of_parts_is_the_sketch_of_the_whole() -> None:
    generator = np.random.default_rng(0)
    keys = np.full(40_000, 7, np.uint64)
    digests = generator.integers(0, 1 << 32, len(keys)).astype(np.uint32)
    whole = smallest(keys, digests)
    assert len(whole[0]) == SKETCH
    parts = [smallest(keys[start::3], digests[start::3]) for start in range(3)]
    joined = smallest(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    assert np.array_equal(np.stack(whole), np.stack(joined))
    counted = count_documents(*joined, least=2)
    assert abs(int(counted["documents"][0]) / 40_000 - 1) < 4 / np.sqrt(SKETCH)  # four standard errors
    few = count_documents(keys[:700], digests[:700], least=2)
    assert int(few["documents"][0]) == len(set(digests[:700].tolist()))


def test_a_shard_gets_the_counts_of_its_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shard looks up gives the same from its sections of all ranges as from a table of everything."""
    monkeypatch.setattr("corpus.dedup.records.PARTITION_RECORDS", 60)
    pages = [page(number) for number in range(30)] + [document(number, 60) for number in range(100, 120)]
    pages += [
        f"{document(200 + number // 2, 20)[:40]}\n第{number}篇别的文章" for number in range(20)
    ]  # lines of two pages
    shards = [pages[:13], [], pages[13:61], pages[61:]]
    lines = RepeatedLinesConfig(min_documents=2)
    result = cut(tmp_path, shards, min_documents=2)
    keyed = [read_bands(file) for file in result.folders["line_keys"].files("lines")]
    everything = np.concatenate(keyed)
    table = count_documents(everything["key"], everything["row"], lines.min_documents)
    ranges = result.folders["line_counts"].files("counts")
    assert len(ranges) >= 4 and len(table) > 10
    for shard, own in enumerate(keyed):
        found = sections(ranges, shard, shard + 1, COUNT_DTYPE).read()
        assert found.tolist() == table[np.isin(table["key"], own["key"])].tolist()
        assert documents_of(found, own["key"]).tolist() == documents_of(table, own["key"]).tolist()
    assert documents_of(table[:0], table["key"]).sum() == 0


def read_bands(file: File) -> Array:
    return sections([file], 0, NUM_SLOTS, RECORD_DTYPE).read()


def test_a_site_is_a_host_or_a_source() -> None:
    urls = pa.chunked_array([["https://u:p@A.cn:8080/x", "http://a.cn", "HTTP://b.cn?q=//a.cn"], [None, "no url"]])
    sources = pa.chunked_array([["s", "t", "u"], ["s", "s"]])
    a, same, other, source, fallback = site_keys(urls, sources)
    assert a == same != other and source == fallback not in (a, other)
    assert len(site_keys(pa.chunked_array([], pa.string()), pa.chunked_array([], pa.string()))) == 0
