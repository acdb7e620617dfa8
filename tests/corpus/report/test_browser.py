"""The report in a real browser, from disk: it draws, asks nobody for anything, and its sliders count exactly.

A page's address carries its sliders (`#filter.length.num_chars.min=200`), so what Chromium dumps after loading it is
what a person sees who has moved them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from corpus.report import distributions
from corpus.report.distributions import BUCKETS, Group
from corpus.report.html import render_html, write_report
from corpus.report.metadata import gather
from corpus.retune.command import retune
from tests.corpus.report.build import HOSTILE_TEXT
from tests.corpus.retune.conftest import built, inputs  # noqa: F401  (fixtures)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr", "--v=0", "--window-size=1100,900",
]  # fmt: skip
OWN_HOSTS = re.compile(r"(?:.*\.)?(?:google|googleapis|gstatic|chromium)\.[a-z]+")  # what a browser itself asks

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"),
    pytest.mark.timeout(110),
]


class Seen:
    """What a browser made of a page."""

    def __init__(self, page: str, folder: Path, fragment: str = "") -> None:
        assert CHROMIUM
        net_log = folder / "net.json"
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={net_log}"]
        done = subprocess.run(
            [*command, "--dump-dom", f"file://{page}{fragment}"], capture_output=True, text=True, timeout=80, check=True
        )
        self.dom, self.log = done.stdout, done.stderr
        urls = re.findall(r'"url":\s*"([^"]+)"', net_log.read_text(encoding="utf-8", errors="replace"))
        hosts = {urlsplit(url).hostname or "" for url in urls if url.startswith(("http", "ws", "ftp"))}
        self.foreign_hosts = {host for host in hosts if not OWN_HOSTS.fullmatch(host)}

    def text(self, name: str) -> str:
        match = re.search(rf'id="{name}"[^>]*>([^<]*)<', self.dom)
        assert match, f"the page has no #{name}"
        return match[1]

    def check(self) -> None:
        """No request left the machine, and the policy had nothing to refuse."""
        assert not self.foreign_hosts
        assert "Refused to" not in self.log and "Content Security Policy" not in self.log and "Uncaught" not in self.log


def counts(text: str) -> list[int]:
    return [int(number.replace(",", "").replace("−", "-")) for number in re.findall(r"[−+]?\d[\d,]*", text)]


@pytest.fixture(scope="module")
def page(built: Path) -> str:  # noqa: F811
    return write_report(str(built))


def test_it_opens_from_disk_and_asks_nobody(page: str, built: Path, tmp_path: Path) -> None:  # noqa: F811
    seen = Seen(page, tmp_path)
    seen.check()
    facts = gather(str(built))
    assert counts(seen.text("answer"))[:2] == [facts.measured.kept, facts.measured.documents]
    assert 'class="js"' in seen.dom  # the script ran


def test_one_slider_counts_what_a_new_run_would_keep(page: str, built: Path, tmp_path: Path) -> None:  # noqa: F811
    seen = Seen(page, tmp_path, "#filter.length.num_chars.min=80")
    seen.check()
    sets = re.findall(r"--set (\S+)", re.search(r'id="command"[^>]*>([^<]*)', seen.dom)[1])  # type: ignore[index]
    prediction, _ = retune(str(built), sets, [], None)
    kept, measured, change, characters = counts(seen.text("answer"))
    assert (kept, measured) == (prediction.after.documents, prediction.measured)
    assert change == kept - prediction.before.documents != 0
    assert characters == prediction.after.characters - prediction.before.characters
    assert "exactly" in seen.text("answer") and "would be kept" in seen.dom


def test_the_chinese_page_counts_the_same(page: str, tmp_path: Path) -> None:
    fragment = "#filter.length.num_chars.min=80"
    seen = [Seen(one, tmp_path, fragment) for one in (page, page.replace("report.html", "report.zh.html"))]
    seen[1].check()
    english, chinese = (sorted(counts(one.text("answer"))) for one in seen)
    assert english == chinese and "将留下" in seen[1].text("answer") and "将留下" in seen[1].dom.partition("<table")[2]
    assert seen[0].text("command") == seen[1].text("command")


def test_several_sliders_count_exactly_of_whole_pages(page: str, built: Path, tmp_path: Path) -> None:  # noqa: F811
    fragment = "#filter.length.num_chars.min=80&filter.characters.latin_ratio.max=0.05&filter.lines.num_lines.max=4"
    seen = Seen(page, tmp_path, fragment + "&filter.repetition.top_2_gram_ratio.max=off")
    seen.check()
    command = re.search(r'id="command"[^>]*>([^<]*)', seen.dom)[1]  # type: ignore[index]
    sets, unsets = re.findall(r"--set (\S+)", command), re.findall(r"--unset (\S+)", command)
    assert len(sets) == 3 and unsets == ["filter.repetition.top_2_gram_ratio.max"]
    prediction, _ = retune(str(built), sets, unsets, None)
    assert counts(seen.text("answer"))[0] == prediction.after.documents


def test_hostile_text_does_nothing(copy: Path, tmp_path: Path) -> None:
    seen = Seen(write_report(str(copy)), tmp_path)
    seen.check()
    assert seen.dom.count("<script") == 2 and "&lt;script&gt;alert(3)" in seen.dom
    assert HOSTILE_TEXT not in seen.dom
    assert json.loads(re.search(r'id="data">(.*?)</script>', seen.dom, re.DOTALL)[1])  # type: ignore[index]


NARROW = """<iframe id="f" width="390" height="900" src="{page}"></iframe><pre id="widths"></pre><script>
f.onload = () => {{
  const page = f.contentDocument, parts = page.querySelectorAll("#quality ~ details, #quality + p + .scroll");
  const wide = [page.documentElement, ...parts];
  for (const one of wide) {{ one.open = true; widths.textContent += `${{one.scrollWidth - one.clientWidth}} `; }}
}};</script>"""


def test_scores_do_not_scroll_on_a_phone(copy: Path, tmp_path: Path) -> None:
    facts = gather(str(copy))
    measured = replace(facts.measured, scores=[Group(name, 1_234_567, 123_456) for name in BUCKETS])
    (tmp_path / "report.html").write_text(
        render_html(replace(facts, measured=measured, scored={"0.3-0.4": facts.samples}))
    )
    (tmp_path / "narrow.html").write_text(NARROW.format(page="report.html"))
    assert CHROMIUM
    words = [*FLAGS, "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    words += ["--virtual-time-budget=5000", f"file://{tmp_path / 'narrow.html'}"]
    done = subprocess.run([CHROMIUM, *words], capture_output=True, text=True, timeout=80, check=True)
    (widths,) = re.findall(r'id="widths">([^<]+)<', done.stdout)
    assert set(widths.split()) == {"0"} and len(widths.split()) >= 3


@pytest.mark.long
def test_several_sliders_are_estimated_from_a_sample(
    built: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributions, "SAMPLE_ROWS", 120)
    out = Path(shutil.copytree(built, tmp_path / "out"))
    seen = Seen(
        write_report(str(out)), tmp_path, "#filter.length.num_chars.min=80&filter.characters.latin_ratio.max=0.01"
    )
    seen.check()
    command = re.search(r'id="command"[^>]*>([^<]*)', seen.dom)[1]  # type: ignore[index]
    prediction, _ = retune(str(out), re.findall(r"--set (\S+)", command), [], None)
    kept, _, change, error, sampled = counts(seen.text("answer"))
    assert "about" in seen.text("answer") and "±" in seen.text("answer") and 80 < sampled < 160
    assert abs(kept - prediction.after.documents) <= 1.5 * error  # 95 % lie within the error
    assert change == kept - prediction.before.documents
