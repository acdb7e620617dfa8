"""The environment of lm-evaluation-harness, apart from ours: no one's pins may move another's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from tools.bench.peers.environment import HARNESS, OFFLINE

ASK = Path(__file__).parent / "ask.py"
MAX_RESULTS_BYTES = 1 << 30


def interpreter() -> Path:
    """One that has the harness: ours, or that of its own environment, which is made where it is not there."""
    if find_spec("lm_eval") is not None:
        return Path(sys.executable)
    HARNESS.install()
    return HARNESS.python


def run_script(python: Path, model: Path, tasks: Path, out: Path, batch_size: int) -> Any:
    """What `ask.py` writes to `out`; all that it says goes to `out` as a .log.

    Raises:
        WenhaiError: the harness failed; its last words are in the message.
    """
    log = out.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="wenhai-harness-") as home, open(log, "wb") as told:
        variables = os.environ | OFFLINE | {"TRANSFORMERS_OFFLINE": "1", "HF_HOME": home}
        command = [str(python), "-P", str(ASK), str(model), str(tasks), str(out), str(batch_size)]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT, env=variables, check=False
        )
    if done.returncode:
        last = log.read_text(errors="replace").strip()[-2000:]
        raise WenhaiError(f"lm-evaluation-harness failed with code {done.returncode} (all it said: {log}): {last}")
    return durable.read_json(out, MAX_RESULTS_BYTES)
