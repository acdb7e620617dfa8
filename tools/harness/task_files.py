"""Task files of lm-evaluation-harness: a YAML file for each task, and its items as JSONL, whose strings are complete.

| | contexts of an item | continuations | in the harness' words |
|---|---|---|---|
| label probability | one | the words | multiple choice |
| conditional loss | one for each word | one | multiple choice with several inputs, as Winogrande |
| texts | none | the text | rolling log-likelihood |

YAML holds names of fields alone, no templates, so nothing in a text is taken for one. `target_delimiter` is empty: the
harness would put a space before an answer. Perplexity by words is left out: what stands between white space is a word
to the harness, a Chinese text is one, and the perplexity of one so long overflows and ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import UsageError
from tools.harness.pairs import Question, Questions

TEXTS = "texts"
CHOICES = {"output_type": "multiple_choice", "target_delimiter": "", "metric_list": [{"metric": "acc"}]}
ROLLING = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "text",
    "metric_list": [{"metric": "bits_per_byte"}, {"metric": "byte_perplexity"}],
}


def write_choices(folder: Path, found: Questions) -> str:
    """Write the files of a task; returns the name by which the harness knows it.

    Raises:
        UsageError: the prompt changes both the context and the continuation from answer to answer, and the harness has
            no form for that.
    """
    name = f"wenhai_{found.name}"
    several = [len(set(question.contexts)) > 1 for question in found.asked]
    form = {"doc_to_text": "context", "doc_to_choice": "choices", "doc_to_target": "gold"}
    if any(several):
        if any(len(set(question.continuations)) > 1 for question in found.asked):
            raise UsageError(
                f"task {found.name}: its prompt changes the context and the continuation with the answer, which the harness "
                "cannot ask. Choose another --method."
            )
        form = {"doc_to_text": "gold", "doc_to_choice": "choices", "doc_to_target": "continuation"}
    _write(folder, name, CHOICES | form, (_line(question, any(several)) for question in found.asked))
    return name


def write_texts(folder: Path, texts: Sequence[str]) -> str:
    """Write the files of the rolling log-likelihood of texts; returns its name."""
    name = f"wenhai_{TEXTS}"
    _write(folder, name, ROLLING, ({"text": text} for text in texts))
    return name


def _line(question: Question, several_contexts: bool) -> dict[str, Any]:
    answer = {"id": question.item.id, "gold": question.item.choice}
    if several_contexts:
        return {**answer, "choices": question.contexts, "continuation": question.continuations[0]}
    return {**answer, "context": question.contexts[0], "choices": question.continuations}


def _write(folder: Path, name: str, form: dict[str, Any], lines: Iterable[dict[str, Any]]) -> None:
    path = folder.resolve() / f"{name}.jsonl"
    durable.write_bytes(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    described = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        **form,
        "metadata": {"version": 1.0},
    }
    yaml = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in described.items())
    durable.write_bytes(folder / f"{name}.yaml", yaml.encode())
