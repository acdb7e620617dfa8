"""House rules that a reader relies on: every file says what it is, and nothing of one machine is written into any."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("corpus", "tokenizer", "pretrain", "tools")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".html", ".css", ".js", ".cfg", ".sh", ""}
SKIPPED = {".git", ".venv", "build", "__pycache__", ".hypothesis"}
# Put together from halves, so that this file does not hold what it looks for.
MACHINE = re.compile(
    "|".join(
        ["(?<![\\w.])/" + "(?:work|root|home)/", "pypi" + r"\.org", "python" + "hosted", r"deb\.debian" + r"\.org"]
    )
)


def files(repository: Path) -> Iterator[Path]:
    """The files of the checkout, without what make and the tools put there."""
    for folder, folders, names in os.walk(repository):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.endswith(("_cache", ".egg-info"))]
        yield from (Path(folder, name) for name in names if name not in SKIPPED)


def test_every_module_says_what_it_is(repository: Path) -> None:
    silent = [
        path.relative_to(repository).as_posix()
        for package in PACKAGES
        for path in sorted((repository / package).rglob("*.py"))
        if path != repository / "corpus/__init__.py" and not path.read_text().startswith('"""')
    ]
    assert not silent


def test_no_line_of_code_is_wider_than_120_characters(repository: Path) -> None:
    wide = [
        f"{path.relative_to(repository)}:{number}"
        for path in files(repository)
        if path.suffix == ".py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120
    ]
    assert not wide


def test_nothing_of_one_machine_is_written_down(repository: Path) -> None:
    found = []
    for path in files(repository):
        if path.suffix in TEXT_SUFFIXES and path.name != "LICENSE":
            found += [
                f"{path.relative_to(repository)}: {hit[0]}"
                for hit in MACHINE.finditer(path.read_text("utf-8", "replace"))
            ]
    assert not found


def test_a_machine_path_is_seen_and_a_relative_one_is_not() -> None:
    assert all(map(MACHINE.search, ["/" + "home/me/data", "open('/" + "root/x')", "https://pypi" + ".org/simple"]))
    assert not any(map(MACHINE.search, ["build/tmp/x", "docs/home/", "a/wo" + "rk/b"]))


def test_every_dependency_is_pinned(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    pins = {
        _normal(line.partition("==")[0]): line.partition("==")[2]
        for line in (repository / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    wanted = {
        _normal(re.split(r"[<>=;!~ \[]", requirement)[0])
        for extra in project["optional-dependencies"].values()
        for requirement in extra
    }
    assert wanted <= pins.keys()
    assert pins["torch"] == "2.13.0"  # no local tag: one pin for the wheels of every index
    assert all(re.fullmatch(r"[\w.]+", version) for version in pins.values())
    assert project["dependencies"] == []


def test_the_corpus_extra_brings_no_torch(repository: Path) -> None:
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not [requirement for requirement in extras["corpus"] if requirement.startswith(("torch", "tensorboard"))]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
