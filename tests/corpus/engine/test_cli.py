"""The command line under hostile circumstances: full disks, foreign locales, missing folders, an output inside the
input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corpus.__main__ import COMMANDS, main

DEVICE_FULL = Path("/dev/full")


PRINT_CHINESE = """
import argparse, sys
from corpus.engine.cli import run_command
parser = argparse.ArgumentParser()
parser.set_defaults(command=lambda _: print("\\u5b66\\u800c", sys.argv[1]))
sys.exit(run_command("test", parser, []))
"""


def test_help_and_status_load_no_heavy_library(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from corpus.__main__ import main\n"
        f"for words in (['--help'], ['status', {str(tmp_path)!r}], ['explain', '--help']):\n"
        "    try:\n        main(words)\n    except SystemExit as stop:\n        assert stop.code == 0\n"
        "assert not {'numba', 'numpy', 'pyarrow', 'pydantic', 'msgspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=250, capture_output=True)


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_help_of_a_verb_shows_how_it_is_used(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert f"python -m corpus {verb} " in capsys.readouterr().out.partition("examples:")[2]


@pytest.mark.skipif(not DEVICE_FULL.exists(), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_no_traceback(tmp_path: Path) -> None:
    with open(DEVICE_FULL, "wb") as full:
        command = [sys.executable, "-m", "corpus", "status", str(tmp_path)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=250, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr


def test_a_folder_that_is_no_build_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none")
    for words in (["status", missing], ["report", missing], ["verify", missing], ["explain", missing, "key"]):
        assert main(words) == 1
        assert f"{missing}: " in (message := capsys.readouterr().err) and "Give the output folder" in message


def test_a_build_does_not_read_its_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / "text-0123456789ab").mkdir(parents=True)
    (tmp_path / "out" / "text-0123456789ab" / "a.jsonl").write_text(json.dumps({"text": "学而时习之"}))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "不亦说乎"}))
    words = ["--recipe", "web_zh", "--input", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["plan", *words]) == 2
    assert "an input inside --out" in capsys.readouterr().err


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_output_is_utf_8_whatever_the_locale(locale: str) -> None:
    environment = os.environ | {"LC_ALL": locale, "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", PRINT_CHINESE, "论语"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=250, check=True)
    assert done.stdout.decode().startswith("学而 ")
