"""What goes wrong in single steps: overflows, numbers that are not finite, loss spikes. Rank 0 tells and records it.

| kind in metrics.jsonl | documents in |
|---|---|
| `overflow`: an fp16 gradient; the step was done again with the `loss_scale` that it says | |
| `not_finite`: a loss or gradient, see `training.step`; of verdict "data" | OUT/not_finite/step-XXXXXXXX.jsonl |
| `loss_spike`: a loss far above the recent ones, see `monitor.spikes` | OUT/loss_spikes/step-XXXXXXXX.jsonl |

Such a file has a line for each part of a document that the step took, as `python -m pretrain trace --json` prints them:
ids, URLs and places, never text; of the micro-batches whose loss was not finite, where there are such, else of the
whole batch; of `MAX_SAMPLES` samples at most, because the other ranks wait. What goes wrong with it does not end a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from pretrain.console import log_message
from pretrain.corpora import open_corpora
from pretrain.monitor.metrics import Metrics
from pretrain.monitor.spikes import Spike, SpikeDetector
from pretrain.run.trace import Sighting, Trace, printable_json
from pretrain.training.step import NotFinite, Run, StepResult

MAX_SAMPLES = 1024  # some thousand rows of the documents' tables: seconds


class Incidents:
    """Looks at each step of a run.

    Args:
        run: Every rank has its own.
        places: The folders of its corpora, by name.
        tokenizer: The file of its model.
        out: The folder of the run.
        metrics: On rank 0.
    """

    def __init__(
        self, run: Run, places: Mapping[str, Path], tokenizer: Path, out: Path, metrics: Metrics | None
    ) -> None:
        self._run, self._places, self._tokenizer = run, places, tokenizer
        self._out, self._metrics = out, metrics
        self._spikes = SpikeDetector(run.config.training.spike_deviations)

    def step(self, result: StepResult) -> None:
        """Look at the step just done; every rank calls it.

        Raises:
            WenhaiError: it was one too many in a row that was not finite.
        """
        state, limit = self._run.state, self._run.config.training.max_bad_steps
        if self._metrics is not None:
            if result.overflows and result.applied:  # else it was none, and the scale is that of before
                self._metrics.record("overflow", state.step, {"loss_scale": result.loss_scale})
            if result.not_finite is not None:
                self._tell_not_finite(self._metrics, result.not_finite)
            if spike := self._spikes.observe(result.loss):
                self._tell_spike(self._metrics, spike)
        if state.num_bad_in_a_row >= limit:
            raise WenhaiError(
                f"step {state.step}: loss or gradient was not finite {limit} times in a row, also when computed again. "
                f"Look at the documents ({self._out / 'not_finite'}). Then run the same command again from the newest "
                "checkpoint, with a lower optimizer.learning_rate, or with another training.seed, which takes other "
                "batches; or delete that checkpoint to go on from the one before, if its weights are at fault."
            )

    def _tell_not_finite(self, metrics: Metrics, found: NotFinite) -> None:
        step, file, documents = self._run.state.step, None, 0
        said = (
            f"WARNING: step {step}: loss {found.loss}, gradient norm {found.grad_norm}, first on "
            f"{_spelled(found.hosts)}"
        )
        if found.verdict == "transient":
            said += "; finite when computed again, and applied. Have that hardware tested if it happens twice."
        else:
            file, documents = self._write_documents("not_finite", found.samples)
            said += f"; not finite when computed again: no weight changed. {_listed(documents, file, step)}"
        values = {
            "loss": found.loss,
            "grad_norm": found.grad_norm,
            "verdict": found.verdict,
            "ranks": list(found.hosts),
        }
        metrics.record("not_finite", step, values | {"documents": documents, "file": file})
        log_message(said)

    def _tell_spike(self, metrics: Metrics, spike: Spike) -> None:
        step = self._run.state.step
        file, documents = self._write_documents("loss_spikes")
        values = {"loss": spike.loss, "mean": spike.mean, "deviations": spike.deviations, "file": file}
        metrics.record("loss_spike", step, values)
        log_message(
            f"step {step}: loss {spike.loss:.4f} is {spike.deviations:.1f} deviations above the recent "
            f"{spike.mean:.4f}. {_listed(documents, file, step)}"
        )

    def _write_documents(self, folder: str, samples: Sequence[int] = ()) -> tuple[str | None, int]:
        """The file with the documents of the step just done, or of some of its samples, and their number."""
        step = self._run.state.step
        path = self._out / folder / f"step-{step:08d}.jsonl"
        try:
            lines, documents = self._documents(step, set(samples))
            durable.write_bytes(path, "".join(f"{line}\n" for line in lines).encode())
        except Exception as error:  # the run is worth more than the list
            log_message(f"WARNING: {path}: the documents of step {step} cannot be listed ({error}). Training goes on.")
            return None, 0
        return str(path.relative_to(self._out)), documents

    def _documents(self, step: int, samples: set[int]) -> tuple[list[str], int]:
        config = self._run.config
        trace = Trace(config, self._run.state, open_corpora(config.data, self._places), self._tokenizer)
        parts = [part for part in trace.step(step) if not samples or part.sample in samples]
        last = [sample for sample, _ in groupby(parts, key=lambda part: part.sample)][:MAX_SAMPLES][-1]
        parts = [part for part in parts if part.sample <= last]
        names = [field.name for field in fields(Sighting) if field.name != "text"]
        values: list[dict[str, Any]] = [
            {name: getattr(sighting, name) for name in names} for sighting in trace.sightings(parts)
        ]
        return [printable_json(value) for value in values], len({value["id"] for value in values})


def _listed(documents: int, file: str | None, step: int) -> str:
    if file is None:
        return f"`python -m pretrain trace --step {step}` lists its documents, from the next checkpoint on."
    return f"{file} lists {documents} documents."


def _spelled(hosts: Mapping[int, str]) -> str:
    """As in `ranks 4, 5 (node-1), 8 (node-2)`."""
    by_host = groupby(sorted(hosts), key=lambda rank: hosts[rank])
    listing = ", ".join(f"{', '.join(map(str, ranks))} ({host})" for host, ranks in by_host)
    return f"rank{'s' * (len(hosts) > 1)} {listing}"
