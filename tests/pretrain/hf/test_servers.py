"""Other servers than transformers' pipeline on an exported folder: each continues as our model does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pretrain.checkpoint import read_saved
from pretrain.hf.export import export
from pretrain.hf.layouts import LAYOUTS, choose
from tests.lazy import Lazy
from tests.pretrain.hf.runs import OURS, write_checkpoint
from tests.pretrain.hf.test_serving import greedy
from tokenizer.model import Tokenizer
from tools.bench.peers.environment import HARNESS, OFFLINE

transformers = Lazy("transformers")

PROMPTS = ["春天来了", "学而时习之", "自由软件"]
COUNT = 12
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HARNESS.is_installed(), reason="no servers; python -m tools.harness installs them"),
]


def serve(kind: str, folder: Path, work: Path) -> Any:
    """What `serve.py` prints."""
    (work / "hub").mkdir()  # transformers serve looks for a cache
    variables = os.environ | OFFLINE | {"HF_HOME": str(work), "TRANSFORMERS_OFFLINE": "1"}
    script = Path(__file__).parent / "serve.py"
    command = [str(HARNESS.python), "-P", str(script), kind, str(folder), str(work), str(COUNT)]
    done = subprocess.run(
        command, input=json.dumps(PROMPTS), capture_output=True, text=True, env=variables, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", [layout.name for layout in LAYOUTS])
def test_ctranslate2_continues_as_our_model_does(name: str, tmp_path: Path, data: Path, tokenizer: Tokenizer) -> None:
    checkpoint = write_checkpoint(tmp_path / "run", data, tokenizer, OURS[name] | {"sequence_length": 64})
    saved = read_saved(checkpoint)
    export(checkpoint, saved, choose(saved.config.model, name), tmp_path / "hf", "float32")
    found = serve("ctranslate2", tmp_path / "hf", tmp_path)
    for prompt in PROMPTS:
        expected = greedy(checkpoint, tokenizer, prompt, COUNT)
        assert found[prompt] == expected[len(tokenizer.encode(prompt)) + 1 :]


def test_the_server_of_transformers_answers_with_our_text(tmp_path: Path, data: Path, tokenizer: Tokenizer) -> None:
    checkpoint = write_checkpoint(tmp_path / "run", data, tokenizer, {"sequence_length": 64})
    saved = read_saved(checkpoint)
    export(checkpoint, saved, choose(saved.config.model, None), tmp_path / "hf", "float32")
    found = serve("transformers", tmp_path / "hf", tmp_path)
    backend = transformers.AutoTokenizer.from_pretrained(
        str(tmp_path / "hf")
    )  # half characters of a random model: as it spells them
    for prompt in PROMPTS:
        expected = greedy(checkpoint, tokenizer, prompt, COUNT)[len(tokenizer.encode(prompt)) + 1 :]
        assert found[prompt] == backend.decode(expected, skip_special_tokens=True)
