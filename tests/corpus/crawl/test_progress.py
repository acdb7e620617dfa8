"""What a terminal shows while a crawl runs."""

from __future__ import annotations

import re
import sys

import pytest

from corpus.crawl.progress import Pulse, show_progress

PULSE = Pulse(
    pages=12_345, fetched_bytes=9, busy=64, done=20_000, pending=123_456, chinese_bytes=98 * 10**6, text_bytes=10**8
)


@pytest.mark.parametrize(("columns", "ends"), [(60, "123,456"), (120, "0.00 MB/s")])
def test_a_narrow_terminal_cuts_the_end_of_the_line(
    columns: int, ends: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with show_progress(quiet=False) as draw:
        draw(PULSE)
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    [line] = {line.strip() for line in re.split(r"[\r\n]", drawn) if "12,345" in line}
    assert re.match(r"crawl .* 12,345 pages, 0\.0/s, 123,456 ?", line) and ends in line and len(line) <= columns
