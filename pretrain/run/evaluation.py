"""What a training run finds out about its model: held-out bits between steps, and at the end a sample and what n-grams
would pay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor

from corpus.engine import durable
from pretrain.console import log_message
from pretrain.evaluation.answers import evaluate_answers
from pretrain.evaluation.bits import Evaluation, combine, evaluate, largest
from pretrain.evaluation.held_out import HeldOut
from pretrain.evaluation.kneser_ney import character_baselines
from pretrain.generation.generate import Settings, UncachedModel, generate
from pretrain.generation.sampling import Sampling
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.monitor.metrics import Metrics
from pretrain.parallel.base.params import num_parameters
from pretrain.run.datasets import Corpora
from pretrain.training.step import Run

RECORDED_SOURCES = 20  # of held-out text, those with most characters; the others are recorded together


class Found(NamedTuple):
    """What all held-out text costs; and bits per character by corpus and by source, each where there are several."""

    whole: Evaluation
    by_corpus: dict[str, float]
    by_source: dict[str, float]


def evaluate_run(run: Run, corpora: Corpora, metrics: Metrics | None) -> Found:
    """Score what is held out, and record it; all ranks take part, also those that have no metrics to keep."""
    config, world = run.config, run.world
    batcher = EvaluationBatcher.of(config, corpora.tokenizer.eod)
    with world.phases("evaluate"):
        how = (config.training.micro_batch_size, world.device, world)
        results = {
            name: evaluate(run.model, held_out, batcher, *how)
            if isinstance(held_out, HeldOut)
            else evaluate_answers(run.model, held_out, config, *how)
            for name, held_out in corpora.held_out.items()
        }
    run.model.reshard()
    whole = combine(list(results.values()))
    found = Found(whole, _by_name(results), _by_name(largest(whole.by_source, RECORDED_SOURCES)))
    if metrics is not None:
        values = {name: getattr(whole, name) for name in ("loss", "bits_per_character", "bits_per_byte")}
        values |= {f"bits_per_character/{name}": bits for name, bits in found.by_corpus.items()}
        values |= {f"bits_per_character/source:{name}": bits for name, bits in found.by_source.items()}
        metrics.record("validation", run.state.step, values)
        parts = "".join(f", {name} {bits:.3f}" for name, bits in found.by_corpus.items())
        log_message(f"held out: {whole.bits_per_character:.3f} bits/char{parts}, loss {whole.loss:.4f}")
    return found


def final_evaluation(run: Run, corpora: Corpora, out: Path, metrics: Metrics | None) -> None:
    """The last evaluation beside character models of the same text, and a sample: on stdout and in
    `out`/summary.json."""
    found = evaluate_run(run, corpora, metrics)
    sample = _sample(run, corpora)
    baselines: dict[str, float] = {}
    with run.world.propagate_errors():
        if metrics is not None:
            baselines = _baselines(corpora)
            summary = {
                "steps": run.state.step,
                "samples": run.state.num_samples,
                "tokens": run.state.num_tokens,
                "bad_steps": run.state.num_bad_steps,
                "parameters": num_parameters(run.config.model),
                "held_out_bits_per_character": found.whole.bits_per_character,
                "held_out_bits_per_byte": found.whole.bits_per_byte,
                **{f"{name}_bits_per_character": value for name, value in baselines.items()},
                "corpora": found.by_corpus,
                "sources": found.by_source,  # the largest of them, and "other"
            }
            durable.write_json(out / "summary.json", summary | {"sample": sample})
    if metrics is not None:
        metrics.end(run.state.step)
        _draw_report(out)
        print(f"held-out bits per character: {found.whole.bits_per_character:.3f}")
        for name, value in found.by_corpus.items():
            print(f"  of {name}: {value:.3f}")
        for name, value in baselines.items():
            print(f"{f'character {name} model:':27} {value:.3f}")
        print(f"sample: {sample}", flush=True)


def _by_name(parts: Mapping[str, Evaluation]) -> dict[str, float]:
    """Bits per character of those that have any character; of one alone it is that of the whole."""
    if len(parts) < 2:
        return {}
    return {name: part.bits_per_character for name, part in parts.items() if part.num_characters}


def _baselines(corpora: Corpora) -> dict[str, float]:
    """What n-grams of characters would pay; where some of it is answers and no text, they are not asked."""
    held_out = [each for each in corpora.held_out.values() if isinstance(each, HeldOut)]
    if len(held_out) < len(corpora.held_out):
        return {}
    return character_baselines(corpora.train_texts(), [text for each in held_out for text in each.texts])


def _sample(run: Run, corpora: Corpora) -> str:
    """A text that continues the prompt; all ranks take part, rank 0's logits decide."""

    def logits(*window: Any) -> Tensor:
        last = run.model.last_logits(*window).float()
        dist.broadcast(last, src=0)
        return last

    config = run.config
    batcher = EvaluationBatcher.of(config, corpora.tokenizer.eod)
    pieces = generate(
        UncachedModel(logits, batcher, run.world.device),
        [corpora.tokenizer.encode(config.evaluation.prompt)],
        Settings(Sampling(seed=config.training.seed), config.evaluation.sample_tokens),
        batcher,
        corpora.tokenizer.piece_bytes,
    )
    return config.evaluation.prompt + "".join(piece.text for piece in pieces)


def _draw_report(out: Path) -> None:
    """The page of the run; what goes wrong there is no fault of the run."""
    from pretrain.monitor.report import write_report

    try:
        log_message(f"report: {write_report(out)}")
    except Exception as error:
        log_message(f"WARNING: no report ({error}). `python -m pretrain report {out}` draws it.")
