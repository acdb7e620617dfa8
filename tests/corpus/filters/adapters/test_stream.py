"""The filter between two pipes: nothing but the text may change, and a bad line costs itself."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpus.__main__ import main
from corpus.engine.errors import WenhaiError
from corpus.filters import Filter
from corpus.filters.adapters.stream import run_stream
from corpus.filters.adapters.summary import Summary
from tests.corpus.texts import document

COMMAND = [sys.executable, "-m", "corpus", "filter", "--recipe", "web_zh"]


def run(data: bytes, judge: Filter, **options: Any) -> tuple[bytes, str, Summary]:
    out, err = io.BytesIO(), io.StringIO()
    summary = run_stream(io.BytesIO(data), out, err, judge, **options)
    return out.getvalue(), err.getvalue(), summary


def line(text: str, **fields: Any) -> bytes:
    return json.dumps({"text": text} | fields, ensure_ascii=False).encode()


def test_an_unedited_line_passes_byte_for_byte(web_zh: Filter) -> None:
    lines = [
        b'{ "n": 1.0,"big":123456789012345678901234567890, "e": 1E5, "text" : "%s", "t\\u00e9": [null, {"a":{}}] }'
        % document(1).replace("\n", "\\n").encode(),
        line(document(2), text2="电话13800138000", url=None),
    ]
    out, _, summary = run(b"\n".join(lines), web_zh)
    assert out == b"\n".join(lines) + b"\n"
    assert (summary.documents, summary.kept, summary.edited) == (2, 2, 0)


def test_an_edited_line_keeps_its_other_fields(web_zh: Filter) -> None:
    source = (
        b'{"z":1.50,"text":"%s","a":123456789012345678901234567890,"e":1E5}'
        % (document(3).replace("\n", "\\n") + "电话13800138000").encode()
    )
    out, _, summary = run(source, web_zh)
    expected = source.replace(b"13800138000", b"<MOBILE>")
    assert out == expected + b"\n"
    assert summary.edited == 1


def test_bad_lines_cost_themselves_and_are_counted(web_zh: Filter) -> None:
    good = [line(document(seed)) for seed in range(3)]
    bad = {
        "charset": [line(document(9)).decode().encode("gbk"), b'{"text": "\xe5\xad"}'],
        "json": [b"{", b'{"text": NaN}', b'{"text": "a\x01"}', b'{"text": "' + b"\\ud800", b'{"a":' * 1150],
        "field": [b"[1]", b"3", b'{"txt": "x"}', b'{"text": 3}', b'{"text": null}', b'{"text": ["a"]}'],
        "too_long": [line("长" * 3000)],
    }
    flat = [entry for entries in bad.values() for entry in entries]
    data = b"\n".join([good[0], *flat[:5], b"", b"  ", good[1], *flat[5:], good[2]])
    out, err, summary = run(data, web_zh, max_line_bytes=6000)
    assert out == b"\n".join(good) + b"\n"
    assert dict(summary.bad) == {kind: len(entries) for kind, entries in bad.items()}
    assert f"line 2, byte {len(good[0]) + 1:,}: charset: not UTF-8 at byte 10 of the line" in err
    for secret in ("txt", "长长"):
        assert secret not in err


def test_only_the_first_bad_lines_are_shown(web_zh: Filter) -> None:
    _, err, summary = run(b"{\n" * 500 + line(document(1)), web_zh)
    assert summary.bad["json"] == 500
    assert err.count("json: not JSON") == 20
    assert "further bad lines are counted" in err


def test_escaped_lone_surrogates_are_repaired(web_zh: Filter) -> None:
    inside = json.dumps({"text": document(1) + "\ud800"}).encode()
    beside = json.dumps({"text": document(2), "title": "\udfff"}).encode()
    out, _, summary = run(inside + b"\n" + beside, web_zh)
    first, second = out.splitlines()
    assert json.loads(first) == {"text": document(1) + "\ufffd"}
    assert second == beside
    assert not summary.bad


def test_line_ends_byte_order_mark_and_last_line(web_zh: Filter) -> None:
    out, _, _ = run(b"\xef\xbb\xbf" + line(document(1)) + b"\r\n" + line(document(2)), web_zh)
    assert out == line(document(1)) + b"\n" + line(document(2)) + b"\n"


def test_dropped_records_carry_their_verdict_and_are_masked(web_zh: Filter) -> None:
    dropped = io.BytesIO()
    out, _, summary = run(line("短，电话13800138000", id=7) + b"\n" + line(""), web_zh, dropped=dropped)
    assert out == b""
    assert summary.dropped == {"length.num_chars": 2}
    first, second = map(json.loads, dropped.getvalue().splitlines())
    assert first == {
        "text": "短，电话<MOBILE>",
        "id": 7,
        "filter_verdict": {
            "rule": "length.num_chars",
            "value": 15.0,
            "threshold": 50.0,
            "bound": "min",
            "detail": None,
        },
    }
    assert second["filter_verdict"]["value"] == 0.0


def test_another_column(web_zh: Filter) -> None:
    source = json.dumps({"content": document(1), "text": "x"}, ensure_ascii=False).encode()
    assert run(source, web_zh, column="content")[0] == source + b"\n"
    with pytest.raises(WenhaiError, match=r"none of 1 lines could be judged.*'body'.*--column"):
        run(source, web_zh, column="body")


def test_nothing_in_nothing_out(web_zh: Filter) -> None:
    out, err, summary = run(b"", web_zh)
    assert (out, summary.documents) == (b"", 0)
    assert "kept" in err


def test_batches_are_bounded_and_change_nothing(web_zh: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\n".join(line(document(seed, seed % 7 + 1)) for seed in range(60))
    expected = run(data, web_zh)[0]
    monkeypatch.setattr("corpus.filters.adapters.stream.BATCH_LINES", 7)
    monkeypatch.setattr("corpus.filters.adapters.stream.PIECE_BYTES", 100)
    assert run(data, web_zh)[0] == expected
    monkeypatch.setattr("corpus.filters.adapters.stream.BATCH_BYTES", 300)
    assert run(data, web_zh)[0] == expected


def test_the_command(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_bytes(line(document(1)) + b"\n" + line("短") + b"\n")
    dropped = tmp_path / "dropped.jsonl"
    with open(tmp_path / "in.jsonl") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["filter", "--recipe", "web_zh", "--dropped", str(dropped)]) == 0
    out, err = capsysbinary.readouterr()
    assert out == line(document(1)) + b"\n"
    assert json.loads(dropped.read_bytes())["filter_verdict"]["rule"] == "length.num_chars"
    assert b"length.num_chars" in err and b"MB/s" in err


def start(*options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.long
def test_a_reader_that_goes_away_is_no_error() -> None:
    with start() as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write((line(document(1)) + b"\n") * 300)
            process.stdin.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.long
def test_ctrl_c_stops_without_a_traceback(tmp_path: Path) -> None:
    with start("--dropped", str(tmp_path / "dropped.jsonl")) as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(b"{\n" + (line(document(1)) + b"\n") * 1000)  # more than one piece, less than a batch
        process.stdin.flush()
        assert b"not JSON" in process.stderr.readline()  # it is running
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=250)
    assert process.returncode == 75
    assert b"Traceback" not in err
    assert os.listdir(tmp_path) == []  # a dropped file under its name would claim to be complete
