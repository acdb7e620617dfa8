"""What a new user does, in a copy of the checkout in an empty folder, with the package indexes of this machine.

Slow: it installs everything, builds the demo and trains its model (some minutes), so `make test-all` runs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.contracts.test_house import SKIPPED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


def run(folder: Path, command: str, expected: int = 0) -> str:
    """Run a command line as a user would; returns what it said on both streams."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "WENHAI"))}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    print(f"$ {command}\n{done.stdout}")
    assert done.returncode == expected, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def clone(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout as it stands, without .venv, build/ and caches."""
    folder = tmp_path_factory.mktemp("fresh") / "wenhai"
    skip = shutil.ignore_patterns(*SKIPPED, "*_cache", "*.egg-info")
    shutil.copytree(repository, folder, ignore=skip)
    return folder


def test_the_two_commands_and_the_three_uses(clone: Path) -> None:
    told = run(clone, "make corpus")
    assert "installing the corpus tools" in told
    assert run(clone, ".venv/bin/python -c 'import importlib.util as u; print(u.find_spec(\"torch\"))'") == "None\n"
    assert (clone / "build/demo/report.html").is_file()

    told = run(clone, "make corpus")  # a second run installs nothing, fetches nothing, computes nothing
    assert "installing" not in told
    assert "documents are here already" in told

    told = run(clone, "make corpus pretrain")
    assert "installing the training tools" in told
    assert "bits per character" in told.replace("bits/character", "bits per character")
    run(clone, "make generate PROMPT='如果要打开一个文件，'")
    run(clone, "make verify && make status && make report")

    run(clone, "make corpus INPUT='build/demo-input/*.warc.gz' OUT=build/my WORKERS=1")
    run(clone, "make verify DATA=build/my")
    documents = [{"id": "1", "text": "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？"}, {"id": "2", "text": ""}]
    (clone / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in documents))
    run(clone, ".venv/bin/python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt")
    assert (clone / "summary.txt").read_text().strip()


def test_the_shards_do_not_depend_on_the_number_of_workers(clone: Path) -> None:
    sums = set()
    for workers in (1, 2, 4):
        out = f"build/workers-{workers}"
        run(clone, f"make corpus INPUT='build/demo-input/*.warc.gz' OUT={out} WORKERS={workers} RECIPE=demo")
        told = run(clone, f"cd {out} && find . -name '*.bin' -o -name '*.idx' | sort | xargs sha256sum")
        assert re.search(r"[0-9a-f]{64}", told)
        sums.add(told)
    assert len(sums) == 1


def test_the_filter_installs_alone(clone: Path) -> None:
    run(clone, "python3 -m venv alone && alone/bin/pip install -qq -c constraints.txt '.[corpus]'")
    code = "from corpus.filters import load; print(load('web_zh').apply(['首页 登录']).kept.tolist())"
    assert run(clone / "alone", f'bin/python -c "{code}"') == "[False]\n"  # its lists and recipes came along
    code = "import importlib.util as u; print([u.find_spec(name) for name in ('torch', 'tools', 'tests')])"
    assert run(clone / "alone", f'bin/python -c "{code}"') == "[None, None, None]\n"
