"""The READMEs say what is there: their commands exist with these options, in both languages, and their Python runs.

The commands themselves are run, in a copy of the checkout, by test_fresh_clone.py (slow).
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.helps import help_of
from tests.contracts.test_makefile import make, phony

PAIRS = tuple(
    (f"{page}.md", f"{page}.zh.md")
    for page in (
        "README",
        "docs/extraction",
        "docs/filter",
        "docs/dedup",
        "docs/ledger",
        "docs/scale",
        "docs/crawl",
        "docs/inputs",
        "docs/tokenizer",
        "docs/parallel",
        "docs/planner",
        "docs/fidelity",
        "docs/cluster",
        "docs/evaluation",
        "docs/ablation",
        "docs/finetuning",
        "docs/huggingface",
        "docs/generation",
    )
)
PAGES = [page for pair in PAIRS for page in pair]
ROOT = Path(__file__).resolve().parents[2]
DEVELOPERS_PAGES = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/api.md",
    "docs/glossary.md",
    "docs/glossary.zh.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/decisions").glob("*.md")),
]


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """Every line of every `sh` block."""
    return [line for block in blocks(page, "sh") for line in block.splitlines() if line and not line.startswith("#")]


def parts(command: str) -> list[list[str]]:
    """The words of each program in a pipe, without redirections."""
    words = shlex.split(re.sub(r"\s\d?[<>]\s*\S+", "", command), comments=True)
    found: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "&&"):
            found.append([])
        else:
            found[-1].append(word)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_block_ends(page: str) -> None:
    fences = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("```")]
    assert fences[1::2] == ["```"] * (len(fences) // 2) and len(fences) % 2 == 0


@pytest.mark.parametrize("page", PAGES)
def test_every_command_exists_with_its_options(repository: Path, page: str) -> None:
    targets, told = phony(repository), make(repository).stdout
    assert commands(page)
    for command in commands(page):
        for words in parts(command):
            if words[0] == "make":
                for word in words[1:]:
                    name, assigned, _ = word.partition("=")
                    assert f"    {name}=" in told if assigned else name in targets, f"{page}: {command}: {word}"
            elif words[:2] == [".venv/bin/python", "-m"]:
                verbs = (
                    2
                    if words[3] == "quality" or words[3:5] in (["plan", "calibrate"], ["plan", "tune"])
                    else not words[3].startswith("-")
                )
                text = help_of(*words[2 : 3 + verbs])
                for option in (word for word in words if word.startswith("-") and word != "-m"):
                    assert option.partition("=")[0] in text, f"{page}: {command}: {option}"
            else:
                assert words[0] in ("cat", "echo", "head", "zcat", "zstdcat", ".venv/bin/pip", "python3"), command


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_both_languages_give_the_same_commands_and_code(english: str, chinese: str) -> None:
    assert commands(english) == commands(chinese)
    strip = re.compile(r"\s*#.*$", re.MULTILINE)
    code = [[strip.sub("", block) for block in blocks(page, "python")] for page in (english, chinese)]
    assert code[0] == code[1]
    headings = [len(re.findall(r"^## ", (ROOT / page).read_text(), re.MULTILINE)) for page in (english, chinese)]
    assert headings[0] == headings[1]


@pytest.mark.parametrize("page", ["README.md", "docs/filter.md"])
def test_the_python_runs_and_prints_what_the_page_says(page: str) -> None:
    for block in blocks(page, "python"):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
        )
        assert done.returncode == 0, done.stderr
        told = re.findall(r"^# -> (.*)$", block, re.MULTILINE)
        assert told == done.stdout.splitlines()


@pytest.mark.parametrize("page", [*PAGES, *DEVELOPERS_PAGES, "CHANGELOG.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text()):
        if not target.startswith("https://"):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", DEVELOPERS_PAGES)
def test_every_file_and_name_of_the_code_is_there(page: str) -> None:
    """`sources/stage.py ExtractStage.run`: the file, from the top or within a package, and the last part of the
    name."""
    for path, name in re.findall(r"`([\w/]+\.(?:py|toml))(?: ([\w.]+))?`", (ROOT / page).read_text()):
        found = [
            file for top in ("", "corpus", "tokenizer", "pretrain", "tests") if (file := ROOT / top / path).exists()
        ]
        if page == "CONTRIBUTING.md" and f"`{path}`, a new file" in (ROOT / page).read_text():
            continue
        found = found or list(ROOT.glob(f"[cptdm]*/**/{path}"))
        assert found, f"{page}: {path}"
        defined = rf"^\s*(?:def|class) {re.escape(name.rpartition('.')[2])}\b"
        assert not name or any(re.search(defined, file.read_text(), re.MULTILINE) for file in found), f"{path} {name}"


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_each_promise_is_made(page: str) -> None:
    made = re.findall(r"^- \*\*(P\d)", (ROOT / page).read_text(), re.MULTILINE)
    assert made == [f"P{number}" for number in range(1, 10)]
