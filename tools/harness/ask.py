"""Runs lm-evaluation-harness, in the interpreter that has it, on an exported folder and the task files of another.

    python ask.py MODEL TASKS OUT.json BATCH_SIZE

Nothing of ours is imported, and no network is used. Choices are asked with `add_bos_token=True`; texts with `False`,
because the harness puts the end-of-document token before a text itself, and would charge for a second one.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def main(model: str, tasks: str, out: str, batch_size: str) -> None:
    """Write {versions, max_length, tasks: {name: {metrics, samples}}}: log-likelihoods of each item, in their order."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=tasks, include_defaults=False)
    by_start: dict[bool, list[str]] = {True: [], False: []}
    for path in sorted(Path(tasks).glob("*.yaml")):
        by_start["multiple_choice" in path.read_text()].append(path.stem)
    found: dict[str, Any] = {
        "versions": {name: version(name) for name in ("lm_eval", "transformers", "torch")},
        "tasks": {},
    }
    for start, names in by_start.items():
        if names:
            asked = HFLM(
                pretrained=model, device="cpu", dtype="float32", batch_size=int(batch_size), add_bos_token=start
            )
            found["max_length"] = asked.max_length
            done = lm_eval.simple_evaluate(
                model=asked, tasks=names, task_manager=manager, bootstrap_iters=0, log_samples=True
            )
            for name in names:
                samples = sorted(done["samples"][name], key=lambda sample: sample["doc_id"])
                found["tasks"][name] = {
                    "metrics": {key: value for key, value in done["results"][name].items() if isinstance(value, float)},
                    "samples": [[_log_likelihood(one) for one in sample["resps"]] for sample in samples],
                }
    Path(out).write_text(json.dumps(found))


def _log_likelihood(responses: Any) -> float:
    """Of the one response to a request: (log-likelihood, is it greedy), or of a text the log-likelihood alone."""
    first = responses[0]
    return float(first[0] if isinstance(first, tuple | list) else first)


if __name__ == "__main__":
    main(*sys.argv[1:])
