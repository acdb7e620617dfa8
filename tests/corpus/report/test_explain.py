"""The ledger answers for every document: read, dropped, duplicate, kept or never born."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus.engine.errors import WenhaiError
from corpus.report import ledger
from corpus.report.explain import explain, explain_json
from tests.corpus.report.build import BROKEN_PLACE, HOSTILE_URL, MAIL, MOBILE, RECORDS, RULE, build, identify


def test_a_document_is_found_by_url_id_prefix_and_ordinal(out: str) -> None:
    row = 2
    identity = identify("00001-00", row).hex()
    for key in (RECORDS["00001-00"][row].url or "", identity, identity[:9], identity[:8].upper(), f"00001-00:{row}"):
        (found,) = ledger.find(out, key)
        assert (found.id, found.shard, found.row) == (identity, "00001-00", row)


def test_every_document_has_one_end(out: str) -> None:
    ends = {"kept": "kept", "short": "dropped", "repeated": "dropped", "exact": "dropped", "near": "dropped"}
    for shard, records in RECORDS.items():
        for row, record in enumerate(records):
            (document,) = ledger.find(out, f"{shard}:{row}")
            events = [event for event in ledger.history(out, document) if event.stage != "tokens"]
            assert events[0].what == "read"
            assert events[-1].what == ends[record.end], (shard, row)
            assert sum(event.what in ("kept", "dropped", "error") for event in events) == 1


def test_dropped_by_a_rule(out: str) -> None:
    text = explain(out, HOSTILE_URL + "&shard=1")
    assert f"dropped by {RULE}: 0.31 > max 0.2" in text
    assert "ordinal 00001-00:7" in text
    assert "dropped by length.num_chars: 5 < min 12" in explain(out, "00000-00:6")


def test_duplicates_name_their_survivor(out: str) -> None:
    survivor = identify("00001-00", 0).hex()[:12]
    assert f"exact duplicate of {survivor} at 00001-00:0, https://site0.example/1/0" in explain(
        out, "https://copy.example/1"
    )
    assert f"near duplicate (similarity 0.91) of {survivor}" in explain(out, "https://near.example/1")


def test_kept_documents_name_their_text_row_and_token_sequence(out: str) -> None:
    text = explain(out, "https://site2.example/0/2")
    assert "kept: text shard 00000-00, row 2" in text
    assert "shard 00000-00-train, sequence 4" in text


def test_a_kept_document_is_found_by_its_row_in_the_final_shard(out: str) -> None:
    kept = [row for row, record in enumerate(RECORDS["00001-00"]) if record.end == "kept"]
    for position, row in enumerate(kept):
        (found,) = ledger.find(out, f"text/00001-00:{position}")
        assert (found.id, found.shard, found.row) == (identify("00001-00", row).hex(), "00001-00", row)
        assert f"kept: text shard 00001-00, row {position}" in explain(out, f"text/00001-00:{position}")
    assert kept[-1] > len(kept)  # a row there is another row here
    with pytest.raises(WenhaiError, match="no document has"):
        ledger.find(out, f"text/00001-00:{len(kept)}")


def test_records_that_never_became_documents(out: str) -> None:
    text = explain(out, BROKEN_PLACE)
    assert f"error:truncated (ended after 12 of 99 bytes, near <EMAIL>) at {BROKEN_PLACE}" in text


def test_nothing_raw_or_personal_is_printed(out: str) -> None:
    for text in (explain(out, "00000-00:7"), json.dumps(explain_json(out, "00000-00:7"), ensure_ascii=False)):
        assert MOBILE not in text and MAIL not in text and "mobile=" not in text
        assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    for key in (BROKEN_PLACE,):
        assert MAIL not in json.dumps(explain_json(out, key))


def test_json_tells_the_same(out: str) -> None:
    (document,) = explain_json(out, "00000-00:7")
    end = document["events"][-1]
    assert end["stage"] == "filter" and end["what"] == "dropped"
    assert end["values"] == {"rule": RULE, "value": 0.31, "threshold": 0.2, "bound": "max"}
    measured = document["events"][-2]["values"]
    assert measured["length.num_chars"]["min"] == 12


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("https://site1.example/0/7", "URLs of that site: https://site1.example/0/"),
        ("abcdef012345", "00000-00:0 (the first document)"),
        ("00000-00:999", "00000-00:0"),
    ],
)
def test_not_found_says_what_to_try(out: str, key: str, hint: str) -> None:
    with pytest.raises(WenhaiError, match="no document has") as caught:
        explain(out, key)
    assert hint in str(caught.value)


def test_a_record_read_twice_is_two_documents(out: str) -> None:
    text = explain(out, identify("00000-00", 10).hex())
    assert text.startswith("2 documents have this name.")
    first, second = text.split("\n\n")[1:]
    assert "exact duplicate of" in first and "at 00000-00:11, https://twin.example/0" in first
    assert "kept: text shard 00000-00, row 6" in second


def test_a_hole_in_the_ledger_is_said(tmp_path: Path) -> None:
    out = build(tmp_path / "holes", lost=1)
    with pytest.raises(WenhaiError, match="the ledger has a hole"):
        explain(out, "00000-00:0")
