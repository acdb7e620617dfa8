"""Our filter inside a datatrove pipeline, in an environment that has datatrove."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from corpus.filters import load
from tests.corpus.texts import document

PIPELINE = """
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from corpus.filters.adapters.datatrove import ChineseFilter
if __name__ == "__main__":
    steps = [
        JsonlReader("in", compression=None),
        ChineseFilter("web_zh", exclusion_writer=JsonlWriter("dropped", compression=None), batch_size=7),
        JsonlWriter("kept", compression=None),
    ]
    LocalPipelineExecutor(pipeline=steps, tasks=2, workers=2, logging_dir="logs").run()
"""


@pytest.mark.slow
def test_in_a_pipeline_with_two_workers(repository: Path, tmp_path: Path) -> None:
    python = Path(sys.executable) if find_spec("datatrove") else repository / "build/peers/datatrove/bin/python"
    if not python.exists():
        pytest.skip("no datatrove: `python -m tools.bench filters --peers` installs it")
    texts = ["短" if row % 3 == 1 else document(row) + "电话13800138000" for row in range(40)]
    for name, rows in (("a", range(25)), ("b", range(25, 40))):
        (tmp_path / "in").mkdir(exist_ok=True)
        lines = [json.dumps({"id": str(row), "text": texts[row], "page": row}) for row in rows]
        (tmp_path / f"in/{name}.jsonl").write_text("\n".join(lines))
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    environment = os.environ | {"PYTHONPATH": str(repository), "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(python), "pipeline.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept, dropped = ([json.loads(line) for line in read(tmp_path / name)] for name in ("kept", "dropped"))
    verdicts = list(load("web_zh").apply(texts))
    expected = {str(row): verdict.text for row, verdict in enumerate(verdicts) if verdict.kept}
    assert {item["id"]: item["text"] for item in kept} == expected
    assert all(item["metadata"]["page"] == int(item["id"]) for item in kept)
    assert len(kept) + len(dropped) == 40
    assert {item["metadata"]["filter_reason"] for item in dropped} == {"length.num_chars"}
    assert {item["metadata"]["filter_threshold"] for item in dropped} == {50.0}


def read(folder: Path) -> list[str]:
    return [line for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]
