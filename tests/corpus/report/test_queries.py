"""The ledger is asked: counts that add up, conditions that reach nothing else, and what another build does."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpus.__main__ import main
from corpus.filters.quality.variety import LABELS
from corpus.report.queries import COLUMNS
from corpus.report.queries.ask import MADE, database
from corpus.report.summary import funnel
from tests.corpus.report.build import BROKEN_PLACE, HOSTILE_URL, MAIL, RECORDS, RULE, SOURCE, build
from tests.corpus.report.test_real_build import documents

Capture = pytest.CaptureFixture[str]
OTHER_THRESHOLD = "filter.length.num_chars={ min = 200 }"


def ask(capture: Capture, *words: str) -> list[dict[str, str]]:
    """The rows of an answer as CSV."""
    assert main([*words, "--format", "csv"]) == 0
    return list(csv.DictReader(io.StringIO(capture.readouterr().out)))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A build of a file and an archive, and one with another threshold in an object store."""
    folder = tmp_path_factory.mktemp("asked")
    lines = [json.dumps(document, ensure_ascii=False).encode() for document in documents()]
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("inside/b.jsonl", b"\n".join(lines[:2]))
    (folder / "c.jsonl").write_bytes(b"\n".join([*lines[2:], lines[3], b'{"text": "half']) + b"\n")
    (folder / "d.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    outs = str(folder / "out"), "memory://asked"
    words = ["run", "--recipe", "web_zh", "--workers", "0", "--quiet", "--set", "sources.max_error_ratio=1"]
    inputs = [str(folder / name) for name in ("a.zip", "c.jsonl", "d.png")]
    for out, more in zip(outs, ([], ["--set", OTHER_THRESHOLD]), strict=True):
        assert main([*words, *more, "--input", *inputs, "--out", out]) == 0
    return outs


def test_groups_add_up_to_the_funnel(out: str, real: tuple[str, str], capsys: Capture) -> None:
    for built in (out, *real):
        told = funnel(built)
        rows = ask(capsys, "ledger", built, "--group", "kind,rule")
        ends = {row["rule"]: int(row["documents"]) for row in rows if row["rule"]}
        assert ends == told.dropped | {f"error:{kind}": count for kind, count in told.errors.items()}
        (kept,) = (row for row in rows if row["kind"] == "kept")
        assert (int(kept["documents"]), int(kept["bytes"] or 0)) == (told.documents_kept, told.bytes_kept)
        assert sum(int(row["documents"]) for row in rows) == told.documents_in
        assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
        sources = ask(capsys, "ledger", built, "--group", "source")
        weights = [int(row["documents"]) * float(row["kept_share"]) for row in sources]
        assert sum(weights) == pytest.approx(told.documents_kept)
    varieties = [ask(capsys, "ledger", built, "--group", "variety", "--where", "kind = 'kept'") for built in real]
    assert all({row["variety"] for row in rows} <= set(LABELS) for rows in varieties), varieties


def test_every_document_has_its_row(out: str, capsys: Capture) -> None:
    rows = ask(capsys, "ledger", out)
    assert list(rows[0]) == list(COLUMNS)
    found = {(row["shard"], row["row"]): row for row in rows if row["kind"] != "error"}
    rules = {"kept": "", "short": "length.num_chars", "repeated": RULE, "exact": "dedup.exact", "near": "dedup.near"}
    ends = {"kept": "kept", "short": "filter", "repeated": "filter", "exact": "text", "near": "text"}
    for shard, records in RECORDS.items():
        for number, record in enumerate(records):
            row = found.pop((shard, str(number)))
            assert (row["id"], row["url"]) == (record.id(SOURCE).hex(), record.url or "")
            assert (row["stage"], row["rule"]) == (ends[record.end], rules[record.end])
    assert not found
    (broken,) = (row for row in rows if row["place"] == BROKEN_PLACE)
    assert (broken["kind"], broken["file"], broken["position"]) == ("error", "pages.warc.gz", "4711")


def test_places_are_files_members_and_positions(real: tuple[str, str], capsys: Capture) -> None:
    rows = ask(capsys, "ledger", real[0])
    assert Counter((row["file"], row["member"], row["kind"] == "left_out") for row in rows) == {
        ("a.zip", "inside/b.jsonl", False): 2,
        ("c.jsonl", "", False): 5,
        ("d.png", "", True): 1,
    }
    positions = [int(row["position"]) for row in rows if row["file"] == "c.jsonl"]
    assert len(set(positions)) == 5 and 0 in positions
    sizes = {row["url"].split(".")[0]: row["bytes"] for row in rows}
    assert sizes["https://short"] == str(len("学而。".encode()))


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("卷一/史记.txt:offset 12", ("卷一/史记.txt", None, 12)),
        ("a.zip!b.zip!c:offset 7:offset 1", ("a.zip", "b.zip!c:offset 7", 1)),
        ("书.jsonl:offset 5 part 2", ("书.jsonl", None, 5)),
        ("a.zip!b.txt:offset 0 part 12", ("a.zip", "b.txt", 0)),
        ("nowhere", ("nowhere", None, None)),
    ],
)
def test_the_parts_of_a_place(place: str, parts: tuple[str, str | None, int | None]) -> None:
    made = ", ".join(MADE[name] for name in ("file", "member", "position"))
    with database() as (connection, _):
        assert connection.execute(f"SELECT {made} FROM (SELECT ? AS place)", [place]).fetchall() == [parts]


def test_conditions_columns_and_limits(out: str, capsys: Capture) -> None:
    rows = ask(capsys, "ledger", out, "--where", f"rule = '{RULE}' AND value > 0.3", "--columns", "id,value")
    assert [row.keys() for row in rows] == [{"id", "value"}] * 2
    assert {float(row["value"]) for row in rows} == {0.31}
    assert len(ask(capsys, "ledger", out, "--limit", "3")) == 3
    one = RECORDS["00000-00"][2].id(SOURCE).hex()
    (row,) = ask(capsys, "ledger", out, "--where", f"ID LIKE '{one[:9]}%'", "--columns", "kind,url")
    assert row == {"kind": "kept", "url": RECORDS["00000-00"][2].url}


def test_formats_hold_the_same_rows(out: str, tmp_path: Path, capsys: Capture) -> None:
    words = ("ledger", out, "--columns", "id,stage,value,row,url")
    printed = ask(capsys, *words)
    for form in ("csv", "parquet"):
        assert main([*words, "--format", form, "--output", str(tmp_path / f"rows.{form}")]) == 0
    with open(tmp_path / "rows.csv", newline="") as file:
        assert list(csv.DictReader(file)) == printed
    read = pq.read_table(tmp_path / "rows.parquet")
    assert read.column_names == list(printed[0])
    values = [{name: "" if value is None else value for name, value in row.items()} for row in read.to_pylist()]
    kinds = [
        {name: type(value)(row[name]) for name, value in found.items()}
        for found, row in zip(values, printed, strict=True)
    ]
    assert values == kinds
    assert not capsys.readouterr().out


def test_a_table_shows_nothing_raw(out: str, capsys: Capture) -> None:
    assert main(["ledger", out, "--columns", "url,detail,bound,row"]) == 0
    shown = capsys.readouterr()
    assert "evil.example" in shown.out and HOSTILE_URL not in shown.out
    assert MAIL not in shown.out and "\x1b" not in shown.out
    assert main(["ledger", out, "--limit", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    "where",
    [
        "file IN (SELECT column0 FROM read_csv('{file}'))",
        "EXISTS (SELECT * FROM read_text('{file}') WHERE content LIKE 'secret%')",
        "EXISTS (FROM read_blob('{file}'))",
        "EXISTS (FROM glob('{folder}/*'))",
        "EXISTS (FROM '{file}')",
        "EXISTS (FROM query('COPY (SELECT 1) TO ''{folder}/made'''))",
        "1 = 1; COPY (SELECT 1) TO '{folder}/made'",
        "1 = 1) UNION ALL SELECT * FROM read_csv('{file}') WHERE (1 = 1",
        "ATTACH '{folder}/made' AS made",
        "1 = 1; ATTACH '{folder}/made' AS made",
        "1 = 1; INSTALL httpfs; LOAD httpfs",
        "1 = 1; SET enable_external_access = true",
        "getenv('HOME') IS NOT NULL",
        "no_such_column = 1",
        "rule =",
        "value > 'many'",
        "count(*) > 1",
        "",
    ],
)
def test_a_condition_reaches_nothing_else(where: str, out: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file.csv").write_text("secret\nsecret\n")
    asked = where.format(file=tmp_path / "file.csv", folder=tmp_path)
    assert main(["ledger", out, "--where", asked]) == 2
    said = capsys.readouterr()
    assert not said.out and len(said.err.splitlines()) == 1 and "Traceback" not in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.csv"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group", "site"), tuple(COLUMNS)),
        (("--columns", "id,site"), tuple(COLUMNS)),
        (("--where", "site = 'x'"), tuple(COLUMNS)),
        (("--columns", "id); DROP TABLE x; --"), ("DROP",)),
        (("--group", "rule", "--columns", "id"), ("--columns",)),
        (("--format", "parquet"), ("--output",)),
        (("--output", "x.csv"), ("--format",)),
        (("--limit", "0"), ("--limit",)),
    ],
)
def test_a_mistake_is_told_in_a_line(words: tuple[str, ...], said: tuple[str, ...], out: str, capsys: Capture) -> None:
    assert main(["ledger", out, *words]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1 and all(name in told for name in said)


@pytest.mark.parametrize("page", ["docs/ledger.md", "docs/ledger.zh.md"])
def test_the_page_names_every_column(repository: Path, page: str) -> None:
    rows = [line for line in (repository / page).read_text().splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(COLUMNS)


def test_only_a_file_is_replaced(out: str, tmp_path: Path, capsys: Capture) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_text("old")
    link.symlink_to(file)
    for path in (pipe, link, tmp_path):
        assert main(["ledger", out, "--format", "csv", "--output", str(path)]) == 2
        assert str(path) in capsys.readouterr().err
    assert pipe.is_fifo() and link.is_symlink() and file.read_text() == "old"
    assert main(["ledger", out, "--format", "csv", "--output", str(file)]) == 0
    assert file.read_text() != "old"


def test_without_duckdb_the_extra_is_named(out: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["ledger", out]) == 2
    assert "wenhai[ledger]" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["table", "csv", "parquet"])
def test_what_fails_on_the_way_leaves_no_file(form: str, copy: Path, tmp_path: Path, capsys: Capture) -> None:
    to = ["--format", form] + ["--output", str(tmp_path / "rows")] * (form == "parquet")
    assert main(["ledger", str(copy), "--where", "source::INT = 1", *to]) == 2
    said = capsys.readouterr().err
    assert "Conversion Error" in said and len(said.splitlines()) == 1
    (damaged,) = copy.glob("filter-*/fates/00001-00.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert main(["ledger", str(copy), "--where", "stage = 'filter'", *to]) == 1
    assert capsys.readouterr().err.startswith(f"corpus: {damaged}: damaged")
    assert not (tmp_path / "rows").exists()


def test_a_folder_that_is_no_build(tmp_path: Path, capsys: Capture) -> None:
    assert main(["ledger", str(tmp_path)]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_the_difference_is_that_of_the_two_ledgers(real: tuple[str, str], capsys: Capture) -> None:
    ends = [
        Counter((row["id"], row["rule"]) for row in ask(capsys, "ledger", built, "--columns", "id,rule"))
        for built in real
    ]
    gone, new = ends[0] - ends[1], ends[1] - ends[0]
    changes = ask(capsys, "diff", *real)
    for side, counted in (("rule_a", gone), ("rule_b", new)):
        assert Counter((row["id"], row[side].removeprefix("kept")) for row in changes) == counted
    dropped = [row for row in changes if row["change"] == "newly dropped"]
    assert dropped and {row["rule_b"] for row in dropped} == {"length.num_chars"}
    assert all(row["rule_a"] == "kept" and row["place"] and int(row["bytes"]) for row in dropped)
    back = ask(capsys, "diff", *reversed(real))
    assert {row["id"] for row in back if row["change"] == "newly kept"} == {row["id"] for row in dropped}
    assert main(["diff", *real]) == 0
    shown = capsys.readouterr().out
    assert f"A {real[0]}" in shown and f"B {real[1]}" in shown and dropped[0]["id"][:12] in shown


def test_a_build_does_not_differ_from_itself(out: str, capsys: Capture) -> None:
    assert ask(capsys, "diff", out, out) == []
    assert main(["diff", out, out]) == 0
    total = funnel(out).documents_in
    assert capsys.readouterr().out.splitlines()[-1].split() == ["unchanged", str(total)]


def test_records_of_one_build_alone_are_told(
    out: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(RECORDS, "00001-00")
    part = build(tmp_path / "part")
    changes = ask(capsys, "diff", out, part)
    assert {row["change"] for row in changes} == {"only in A"}
    assert len(changes) == funnel(out).documents_in - funnel(part).documents_in
    assert {row["change"] for row in ask(capsys, "diff", part, out, "--limit", "2")} == {"only in B"}
