"""FAULTS row 39: numbers that JSON has no room for are an error of their line; no inf or nan reaches a document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus.engine.run import run_stages
from tests.corpus.sources.files import extract_stage, read_all
from tests.corpus.sources.test_stage import rows

REFUSED = {
    "1e999": "json",
    "-1e999": "json",
    "1" + "0" * 400 + ".5": "json",
    "1" + "0" * 5000: "json",
    "NaN": "json",
    "Infinity": "json",
    "-Infinity": "json",
    "0x10": "json",
    "01": "json",
    "+1": "json",
    ".5": "json",
    "[" * 5000 + "]" * 5000: "json",
    '{"a":' * 5000 + "1" + "}" * 5000: "json",
}
READ = ["18446744073709551616", "1" + "0" * 300, "-9223372036854775809", "1e308", "5e-324", "1e-999", "-0", "0.1"]


@pytest.mark.parametrize("escaped", [False, True])  # an escaped lone surrogate takes another way through the parser
@pytest.mark.parametrize("number", REFUSED, ids=lambda number: number[:12])
def test_refused(tmp_path: Path, number: str, escaped: bool) -> None:
    text = "\\ud800学" if escaped else "学"
    lines = f'{{"text": "而"}}\n{{"text": "{text}", "n": {number}}}\n{{"text": "时"}}\n'
    good, bad = read_all(tmp_path / "a.jsonl", lines.encode())
    assert [record.text for record in good] == ["而", "时"]
    assert [error.kind for error in bad] == [REFUSED[number]]


def test_read_and_written_as_finite_json(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [f'{{"text": "学{index}", "n": {number}}}' for index, number in enumerate(READ)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines))
    stage = extract_stage(str(tmp_path / "in"), meta=["n"])
    found = rows(run_stages([stage], str(tmp_path / "out"), workers=0)["extract"])

    def refuse(name: str) -> float:
        raise AssertionError(name)

    values = [json.loads(row["meta"], parse_constant=refuse)["n"] for row in found]
    assert values == [json.loads(number) for number in READ]
