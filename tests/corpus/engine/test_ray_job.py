"""`tools/ray/submit.sh` as it is written: a job on a head of our own, from its submission to the tokens.

Job submission is part of Ray's dashboard, which `ray[default]` brings; without it the test is skipped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from corpus.report.verify import verify
from tests.corpus.texts import write_shards

ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    "PYTHONUNBUFFERED": "1",  # the head's address is read from a pipe
    "RAY_USAGE_STATS_ENABLED": "0",
}
HEAD = ["ray", "start", "--head", "--block", "--port=0", "--num-cpus=1", "--object-store-memory=80000000"]


@pytest.fixture
def head() -> Iterator[str]:
    """The address of the job server of a cluster of this machine alone."""
    for module in ("ray", "aiohttp_cors", "colorful", "opencensus", "prometheus_client"):
        pytest.importorskip(module)
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # short: sockets lie in it
        command = [*HEAD, f"--temp-dir={folder}"]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        try:
            if (address := job_server(process.stdout)) is None:
                pytest.skip("Ray's dashboard did not come up: is all of ray[default] here?")
            yield address
        finally:
            process.send_signal(signal.SIGTERM)  # of this head only: `ray stop` would end every cluster of the machine
            process.communicate(timeout=300)


def job_server(lines: Iterable[str]) -> str | None:
    """Its address, of which the head tells before it says that it will block."""
    for line in lines:
        if found := re.search(r"RAY_(?:API_SERVER_)?ADDRESS='(http:\S+)'", line):
            return found[1]
        if "will now block" in line:
            break
    return None


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_submitted_job_builds_a_corpus_and_its_tokens(head: str, repository: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "in", [range(50), range(40, 90)])
    recipe = tmp_path / "small.toml"
    recipe.write_text(
        (repository / "corpus" / "recipes" / "web_zh.toml").read_text() + "\n[tokenizer]\nvocab_size = 800\n"
    )
    values = {"RAY_ADDRESS": head, "RECIPE": str(recipe), "INPUT": str(tmp_path / "in"), "OUT": str(tmp_path / "out")}
    command = ["sh", "tools/ray/submit.sh"]
    done = subprocess.run(
        command, cwd=repository, env=ENVIRONMENT | values, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    assert list(tmp_path.glob("out/tokens-*/data/*.bin"))
    assert verify(str(tmp_path / "out")) == []
