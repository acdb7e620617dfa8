"""The pictures of the pipeline schedules show what the simulator says."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.schedules import SCHEDULES, as_svg, as_text, draw, main

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = Path(__file__).parents[2] / "docs" / "schedules.svg"


def test_text_has_a_line_for_each_rank() -> None:
    assert as_text(draw("1f1b", 2, 3, (1, 1, 1))).splitlines() == [
        "1f1b: bubble 33.3 %, micro-batches held: 2",
        "F0F1....B0  F2B1  ..B2  ",
        "..F0B0  F1B1  F2B2  ",
    ]


def test_text_keeps_to_the_times() -> None:
    assert as_text(draw("zbv", 2, 1, (2, 3, 1))).splitlines()[1:] == [
        "F0  ........f0  i0    w0............I0    W0",
        "....F0  f0  ..........i0    w0I0    W0",
    ]


def test_a_terminal_gets_colours_unless_it_wants_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for no_color, expected in (("", "\x1b[30;44mF0\x1b[0m"), ("1", "F0")):
        monkeypatch.setenv("NO_COLOR", no_color)
        main(["--schedule", "1f1b", "--ranks", "1", "--micro-batches", "1"])
        assert capsys.readouterr().out.splitlines()[1].startswith(expected)


def test_svg_has_a_block_for_each_action() -> None:
    drawings = [draw("1f1b", 2, 3, (1, 1, 1)), draw("zbv", 2, 4, (2, 3, 2))]
    root = ElementTree.fromstring(as_svg(drawings))
    blocks = [block for block in root.iter(f"{SVG}rect") if block.get("height") == "17"]
    assert len(blocks) == sum(len(own) for drawing in drawings for own in drawing.timeline.lists) == 12 + 48
    assert sum(block.get("class", "").endswith(" faint") for block in blocks) == 24
    first = [(float(block.get("x", 0)), float(block.get("width", 0)) + 0.6) for block in blocks[:6]]
    (start, unit), *_ = first
    assert [round((x - start) / unit) for x, _ in first] == [0, 1, 4, 6, 7, 10]
    assert [round(width / unit) for _, width in first] == [1, 1, 2, 1, 2, 2]
    width = float(root.get("width", 0))
    assert max(float(block.get("x", 0)) + float(block.get("width", 0)) for block in blocks) <= width
    words = [words.text for words in root.iter(f"{SVG}text")]
    assert "zbv, 2 stages a rank: bubble 5.4 %, micro-batches held: 2" in words and words.count("rank 1") == 2


def test_the_page_shows_what_the_tool_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--svg", str(tmp_path / "schedules.svg")])
    again = (tmp_path / "schedules.svg").read_text()
    assert again == PICTURE.read_text(), "out of date: python -m tools.schedules --svg docs/schedules.svg"
    printed = capsys.readouterr().out
    assert [block.splitlines()[0].split(":")[0].split(",")[0] for block in printed.split("\n\n")] == list(SCHEDULES)


@pytest.mark.parametrize("wrong", [["--ranks", "0"], ["--times", "1", "0", "1"], ["--schedule", "other"]])
def test_what_cannot_be_drawn_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(wrong)
