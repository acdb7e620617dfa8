"""A training run: from its shards or its newest checkpoint to the last step, with what it says and saves on the way.

SIGTERM and SIGINT finish the step, save and exit with 75: the same command goes on from there, and from the newest
checkpoint after any other end, bit for bit on the same layout of ranks and within rounding on any other. One step is
`pretrain.step`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from corpus.engine import durable
from corpus.engine.errors import Stopped, WenhaiError
from pretrain import checkpoint
from pretrain.checkpoint import Identity
from pretrain.config import RunConfig, with_vocab_size
from pretrain.corpora import Corpora, corpus_shares, open_run
from pretrain.monitor.metrics import Metrics, peak_flops, say
from pretrain.parallel import mesh
from pretrain.parallel.params import num_parameters
from pretrain.state import State
from pretrain.step import Run, StepResult, new_run, note_order, train_step


def train(config: RunConfig, data: Path | None, out: Path, tokenizer_path: Path | None = None) -> None:
    """Train until `num_steps`, from the newest checkpoint in `out` if there is one; on every rank of the run.

    Reads `data`, or the corpora that the configuration names. Prints the held-out bits per character and a sample on
    stdout at the end, and writes them to `out`/summary.json.

    Raises:
        Stopped: a signal asked for it; the same command resumes.
        WenhaiError: data, checkpoint or disk are wrong, or the loss is not finite `max_bad_steps` times in a row.
    """
    training = config.training
    with mesh.start(config.parallel, training.device, training.timeout_minutes) as world, ExitStack() as stack:
        stop_requested = stack.enter_context(_signals())
        with world.together():
            if world.rank == 0:
                stack.enter_context(durable.RunLock(out))
                durable.sweep(out)
                for name in checkpoint.sweep(out):
                    say(f"{name}: removed, its save did not finish")
        with world.together():
            newest = checkpoint.newest(out)
            done = State() if newest is None else checkpoint.read_state(newest)
            corpora = open_run(config, data, tokenizer_path, done.step, done.num_samples)
            config = with_vocab_size(config, corpora.tokenizer.vocab_size)
        run = new_run(config, world, corpora.loader, corpora.order)
        if newest is not None:
            run.state = checkpoint.load(newest, run.model, run.optimizer, config, corpora.identity, world)
            note_order(run.state, corpora.order)
        metrics: Metrics | None = None
        with world.together():
            if world.rank == 0:
                metrics = stack.enter_context(_metrics(run, corpora, out))
                _introduce(run, corpora, newest)
        _loop(run, corpora, out, metrics, stop_requested)
        _finish(run, corpora, out, metrics)


def _loop(run: Run, corpora: Corpora, out: Path, metrics: Metrics | None, stop_requested: Callable[[], bool]) -> None:
    config, state, world = run.config, run.state, run.world
    while state.step < config.training.num_steps:
        result = train_step(run)
        if metrics is not None:
            metrics.step(state.step, result)
        if not result.applied:
            _warn_or_stop(run, result, metrics)

        is_last = state.step == config.training.num_steps
        (stop,) = world.any_of(stop_requested())
        if stop or is_last or state.step % config.checkpoint.every_steps == 0:
            _save(run, corpora.identity, out, metrics, must=stop or is_last)
        if stop and not is_last:
            raise Stopped(f"stopped after step {state.step}, saved. Run the same command again to go on from there.")
        if state.step % config.evaluation.every_steps == 0 and not is_last:
            _evaluate(run, corpora, metrics)


def _save(run: Run, identity: Identity, out: Path, metrics: Metrics | None, must: bool) -> None:
    """Save; where the disk refuses, go on training unless this was the last chance."""
    try:
        folder = checkpoint.save(out, run.state, run.model, run.optimizer, run.config, identity, run.world)
    except WenhaiError as error:
        if must:
            raise
        if metrics is not None:
            say(f"WARNING: no checkpoint of step {run.state.step}: {error} Training goes on; the last one stands.")
            metrics.record("save_failed", run.state.step, {})
        return
    if metrics is not None:
        say(f"saved {folder}")
        metrics.restart_clock()


def _evaluate(run: Run, corpora: Corpora, metrics: Metrics | None) -> dict[str, float]:
    """Held-out bits per character of all corpora, under "", and of each where there are several; all ranks take part."""
    from pretrain.evaluate import evaluate, parallel_score, together

    config = run.config
    score = parallel_score(run.model, config.model.document_mask)
    results = {
        name: evaluate(
            score,
            held_out,
            config.model.sequence_length,
            config.training.micro_batch_size,
            run.world.device,
            run.world,
            reset_positions=config.data.reset_positions,
        )
        for name, held_out in corpora.held_out.items()
    }
    run.model.reshard()
    whole = together(list(results.values()))
    bits = {"": whole.bits_per_character}
    if len(results) > 1:
        bits |= {name: result.bits_per_character for name, result in results.items()}
    if metrics is not None:
        by_corpus = {f"bits_per_character/{name}": value for name, value in bits.items() if name}
        values = {"loss": whole.loss, "bits_per_character": whole.bits_per_character}
        metrics.record("validation", run.state.step, values | by_corpus)
        parts = "".join(f", {name} {value:.3f}" for name, value in bits.items() if name)
        say(f"held out: {whole.bits_per_character:.3f} bits/char{parts}, loss {whole.loss:.4f}")
        metrics.restart_clock()
    return bits


def _sample(run: Run, corpora: Corpora) -> str:
    """A text that continues the prompt; all ranks take part, rank 0's logits decide."""
    from pretrain.generate import Sampling, Windows, generate, stream_text

    def logits(*window: Any) -> Tensor:
        last = run.model.last_logits(*window).float()
        dist.broadcast(last, src=0)
        return last

    config = run.config
    tokens = generate(
        logits,
        corpora.tokenizer.encode(config.evaluation.prompt),
        config.evaluation.sample_tokens,
        Sampling(seed=config.training.seed),
        Windows.of(config, corpora.tokenizer.eod),
        device=run.world.device,
    )
    return config.evaluation.prompt + "".join(stream_text(tokens, corpora.tokenizer.piece_bytes))


def _finish(run: Run, corpora: Corpora, out: Path, metrics: Metrics | None) -> None:
    """The last evaluation beside character models of the same text, and a sample."""
    from pretrain.kneser_ney import character_baselines

    by_corpus = _evaluate(run, corpora, metrics)
    bits = by_corpus.pop("")
    sample = _sample(run, corpora)
    baselines: dict[str, float] = {}
    with run.world.together():
        if metrics is not None:
            held_out_texts = [text for held_out in corpora.held_out.values() for text in held_out.texts]
            baselines = character_baselines(corpora.train_texts(), held_out_texts)
            summary = {
                "steps": run.state.step,
                "samples": run.state.num_samples,
                "tokens": run.state.num_tokens,
                "bad_steps": run.state.num_bad_steps,
                "parameters": num_parameters(run.config.model),
                "held_out_bits_per_character": bits,
                **{f"{name}_bits_per_character": value for name, value in baselines.items()},
                "corpora": by_corpus,  # held-out bits per character of each, where there are several
            }
            durable.write_json(out / "summary.json", summary | {"sample": sample})
    if metrics is not None:
        print(f"held-out bits per character: {bits:.3f}")
        for name, value in by_corpus.items():
            print(f"  of {name}: {value:.3f}")
        for name, value in baselines.items():
            print(f"{f'character {name} model:':27} {value:.3f}")
        print(f"sample: {sample}", flush=True)


def _warn_or_stop(run: Run, result: StepResult, metrics: Metrics | None) -> None:
    state, limit = run.state, run.config.training.max_bad_steps
    if metrics is not None:
        metrics.record("not_finite", state.step, {"loss": result.loss, "grad_norm": result.grad_norm})
        say(
            f"WARNING: step {state.step}: loss {result.loss}, gradient norm {result.grad_norm}; no weight changed. "
            f"`python -m pretrain trace --step {state.step}` lists its documents, from the next checkpoint on."
        )
    if state.num_bad_in_a_row >= limit:
        raise WenhaiError(
            f"step {state.step}: loss or gradient was not finite {limit} times in a row. Lower "
            "optimizer.learning_rate, look at the documents (python -m pretrain trace), or resume with another seed."
        )


def _metrics(run: Run, corpora: Corpora, out: Path) -> Metrics:
    peak = peak_flops(run.world.device, run.config.training.precision)
    return Metrics(
        out,
        run.config.metrics,
        run.config.model,
        num_steps=run.config.training.num_steps,
        tokens_per_character=corpora.tokens_per_character,
        peak=peak * run.world.size if peak else None,
        device=run.world.device,
        shows_batch_size=run.config.training.rampup is not None,
    )


def _introduce(run: Run, corpora: Corpora, newest: Path | None) -> None:
    config, training = run.config, run.config.training
    shares = corpus_shares(corpora.loader, corpora.order.batch_sizes.num_samples(training.num_steps))
    batch = f"{training.rampup.start} to " if training.rampup is not None else ""
    epochs = f" = {shares[0].epochs:.2f} epochs" if len(shares) == 1 else ""
    say(
        f"{num_parameters(config.model) / 1e6:.1f} M parameters, {run.world.size} x {run.world.device.type}, "
        f"{training.precision}, {_layout(run)}; {corpora.loader.num_tokens:,} tokens, "
        f"{training.num_steps:,} steps of {batch}{training.global_batch_size} x "
        f"{config.model.sequence_length} tokens{epochs}"
    )
    for share in shares if len(shares) > 1 else []:
        say(
            f"corpus {share.name}: {share.num_tokens:,} tokens, {float(share.weight):.2%} of the samples, "
            f"{share.epochs:.2f} epochs{'' if share.name in corpora.held_out else ', nothing held out'}"
        )
    if newest is not None:
        say(f"resuming from {newest} (step {run.state.step})")


def _layout(run: Run) -> str:
    """As in `tp 2 x pp 2 x dp 2, 1f1b, zero 1`."""
    world, parallel = run.world, run.config.parallel
    lengths = {"tp": world.tp_size, "pp": world.pp_size, "dp": world.dp_size}
    words = [" x ".join(f"{axis} {length}" for axis, length in lengths.items() if length > 1)]
    words += [parallel.schedule if parallel.pp > 1 else "", f"zero {parallel.zero}"]
    words += ["" if parallel.recompute == "none" else f"recompute {parallel.recompute}"]
    return ", ".join(word for word in words if word)


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Turn SIGTERM and SIGINT into a question the loop asks; a second signal changes nothing, so a save is not torn."""
    received: list[int] = []
    names = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(name, lambda number, _: received.append(number)) for name in names]
    try:
        yield lambda: bool(received)
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)
