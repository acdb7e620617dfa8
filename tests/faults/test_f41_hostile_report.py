"""Row 41: titles, URLs and texts of a crawl are hostile; no report, card, terminal line or JSON lets them act."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus.__main__ import main
from tests.corpus.texts import document

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
ESCAPES = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\u2066\u200b"
BREAKOUTS = "</script><!--<script>\"'>|`x`|[a](javascript:alert(3))\u2028]]>"
EVIL = SCRIPT + ESCAPES + BREAKOUTS
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build by the command line of documents that all say something evil, half of them dropped."""
    folder = tmp_path_factory.mktemp("hostile")
    lines = []
    for seed in range(40):
        text = EVIL + document(seed, 1 if seed % 2 else 12) + EVIL
        url = f"https://evil{seed % 3}.example/{EVIL}/{seed}?q={EVIL}#{EVIL}"
        lines.append(json.dumps({"url": url, "title": EVIL, "source": EVIL, "text": text}))
    (folder / "in\x1b[31m<b>.jsonl").write_text("\n".join([*lines, '{"text": ' + EVIL]) + "\n", encoding="utf-8")
    recipe = folder / "recipe.toml"
    recipe.write_text(f"description = {json.dumps(SCRIPT)}\n[filter.length]\nnum_chars = {{ min = 300 }}\n")
    command = ["run", "--recipe", str(recipe), "--input", str(folder / "in*.jsonl"), "--out", str(folder / "out")]
    assert main([*command, "--workers", "0", "--quiet"]) == 0
    return folder / "out"


def printed(out: Path) -> Iterator[tuple[str, str]]:
    """(what, its output) of all commands that tell of documents."""
    key = f"{next(out.glob('filter-*/statistics/*')).stem}:0"
    for words in (
        ["explain", str(out), key],
        ["explain", str(out), key, "--json"],
        ["report", str(out)],
        ["retune", str(out), "--set", "filter.length.num_chars.min=100"],
        ["retune", str(out), "--set", "filter.length.num_chars.min=100", "--json"],
    ):
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            assert main(words) == 0
        yield " ".join((words[0], *words[2:])), stream.getvalue()


def test_nothing_printed_steers_a_terminal(out: Path) -> None:
    for what, text in printed(out):
        assert text, what
        assert not UNSAFE.search(text), what


@pytest.mark.parametrize("name", ["report.html", "report.zh.html"])
def test_the_page_has_only_its_own_elements(out: Path, name: str) -> None:
    page = (out / name).read_text(encoding="utf-8")
    assert not UNSAFE.search(page)
    assert page.count("<script") == 2 == page.count("</script")
    assert "<img" not in page and "<!--" not in page and "&lt;script&gt;alert(1)" in page
    assert re.search(r'Content-Security-Policy" content="default-src \'none\'; style-src \'sha256-', page)


@pytest.mark.parametrize("name", ["report.md", "DATASET_CARD.md"])
def test_markdown_holds_neither_html_nor_links(out: Path, name: str) -> None:
    text = (out / name).read_text(encoding="utf-8")
    assert not UNSAFE.search(text)
    assert not re.search(r"<[a-z!/]", text)
    assert not re.search(r"(?<!\\)\]\(", text)
    for row in (line for line in text.splitlines() if line.startswith("| ")):
        assert not re.search(r"(?<!\\)`x", row)


def test_stored_samples_are_clean_before_any_report(out: Path) -> None:
    from corpus.document import read_table

    for path in out.glob("filter-*/samples/*.parquet"):
        table = read_table(path)
        assert table.num_rows
        shown = "".join(table["excerpt"].to_pylist() + table["url"].to_pylist())
        assert not UNSAFE.search(shown) and "?q=" not in shown
