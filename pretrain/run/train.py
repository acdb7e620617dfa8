"""A training run: from its shards or its newest checkpoint to the last step, with what it says and saves on the way.

SIGTERM, SIGINT and SIGUSR1 finish the step, save and exit with 75: the same command goes on from there, and from the
newest checkpoint after any other end, bit for bit on the same layout of ranks and within rounding on any other. One
step is `pretrain.training.step`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from corpus.engine import durable
from corpus.engine.errors import Stopped, UsageError
from pretrain import checkpoint
from pretrain.attention_backend import backend_of
from pretrain.checkpoint import Saver
from pretrain.checkpoint.places import Place
from pretrain.config import RunConfig, corpus_folders, to_json, with_vocab_size
from pretrain.console import log_message
from pretrain.corpora import corpus_shares
from pretrain.hardware import device_name
from pretrain.monitor import memory
from pretrain.monitor.metrics import Metrics, is_reported, measure
from pretrain.monitor.profile import Profiler
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World
from pretrain.parallel.base.params import num_parameters
from pretrain.parallel.engine import compose
from pretrain.run.datasets import Corpora, open_datasets
from pretrain.run.evaluation import evaluate_run, final_evaluation
from pretrain.run.incidents import Incidents
from pretrain.signals import stop_on_signal
from pretrain.staging import stage_on_all_ranks
from pretrain.training.optim import learning_rate
from pretrain.training.state import State
from pretrain.training.step import Run, new_run, note_order, train_step
from pretrain.workload.memory import ITEM_BYTES

_Origin = tuple[str, RunConfig]  # the checkpoint that a run goes on from, and its own configuration


def train(config: RunConfig, data: str | Path | None, out: Path, tokenizer_path: Path | None = None) -> None:
    """Train until `num_steps`, from the newest checkpoint in `out` if there is one; on every rank of the run.

    Reads `data`, or the corpora that the configuration names. Prints the held-out bits per character and a sample on
    stdout at the end, and writes them to `out`/summary.json.

    Raises:
        Stopped: a signal asked for it; the same command resumes.
        WenhaiError: data, checkpoint or disk are wrong, or the loss is not finite `max_bad_steps` times in a row.
        UsageError: `parallel` is "auto".
    """
    if config.parallel.auto:
        raise UsageError(
            'parallel = "auto" is no layout yet: `python -m pretrain train` chooses it before a run. Start the run '
            "with that command, or set parallel.tp, pp and the rest"
        )
    training = config.training
    with (
        mesh.start(config.parallel, training.device, training.timeout_minutes, out / "stacks") as world,
        ExitStack() as held,
    ):
        place = checkpoint.place_of(out, config.checkpoint)
        _claim(config, place, out, world, held)
        folders = held.enter_context(stage_on_all_ranks(world, config.data, corpus_folders(config.data, data)))
        run, corpora, origin = _begin(config, data, tokenizer_path, folders, place, world)
        saver = Saver(place, run.model, run.optimizer, run.config, corpora.identity, world)
        metrics = _record(run, corpora, origin, out, held)
        incidents = Incidents(run, folders, corpora.identity.tokenizer, out, metrics)
        profiler = held.enter_context(closing(Profiler(out, config.metrics, world.rank, world.phases, world.device)))
        with saver.finishing():
            _loop(run, corpora, saver, metrics, incidents, profiler, held.enter_context(stop_on_signal()))
        final_evaluation(run, corpora, out, metrics)


def _claim(config: RunConfig, place: Place, out: Path, world: World, held: ExitStack) -> None:
    """No other run writes there, as long as this one lives; what saves that died have left goes, if this one fits."""
    with world.propagate_errors():
        if world.rank == 0:
            held.enter_context(durable.RunLock(out))
            durable.sweep(out)
            held.enter_context(place.alone())
    memory.check(config, world)
    with world.propagate_errors():
        for name in place.sweep(is_first=world.rank == 0):
            log_message(f"{name}: removed, its save did not finish")


def _begin(
    config: RunConfig,
    data: str | Path | None,
    tokenizer_path: Path | None,
    folders: Mapping[str, Path],
    place: Place,
    world: World,
) -> tuple[Run, Corpora, _Origin | None]:
    """Corpora, model and optimizer: as the newest checkpoint has them, or new."""
    with checkpoint.newest_at(place, world) as newest:
        with world.propagate_errors():
            planned = config if newest is None else checkpoint.read_saved(newest).config
            done = State() if newest is None else checkpoint.read_state(newest)
            corpora = open_datasets(config, data, tokenizer_path, done.step, done.num_samples, folders)
            config = with_vocab_size(config, corpora.tokenizer.vocab_size)
        run = new_run(config, world, corpora.loader, corpora.order, fill=newest is None)
        if newest is None:
            return run, corpora, None
        run.state = checkpoint.load(newest, run.model, run.optimizer, config, corpora.identity, world)
        note_order(run.state, corpora.order)
        return run, corpora, (place.where(newest.name), planned)


def _record(run: Run, corpora: Corpora, origin: _Origin | None, out: Path, held: ExitStack) -> Metrics | None:
    """On rank 0: the metrics, and what is said of a run that begins."""
    metrics = None
    with run.world.propagate_errors():
        if run.world.rank == 0:
            of_text, size, device = corpora.tokens_per_character, run.world.size, run.world.device
            metrics = Metrics(out, run.config, tokens_per_character=of_text, device=device, num_ranks=size)
            held.enter_context(metrics)
            where, planned = origin or (None, run.config)
            _introduce(run, corpora, where, metrics)
            for line in _reshaped(planned, run.config, run.state.step):
                log_message(line)
    return metrics


def _loop(
    run: Run,
    corpora: Corpora,
    saver: Saver,
    metrics: Metrics | None,
    incidents: Incidents,
    profiler: Profiler,
    stop_requested: Callable[[], bool],
) -> None:
    config, state, world = run.config, run.state, run.world
    watch, near = memory.Watch(config, world), (False, False, False)
    world.phases.take()  # what the start took
    while state.step < config.training.num_steps:
        profiler.before(state.step + 1)
        result = train_step(run)
        profiler.after()
        reports = is_reported(state.step, config.metrics, config.training.num_steps)
        interval = measure(world) if reports else None
        _tell_saves(saver, metrics)
        if metrics is not None:
            metrics.step(state.step, result, interval)
        incidents.step(result)

        is_last = state.step == config.training.num_steps
        near = watch.flags() if reports else near
        wanted = reports and world.rank == 0 and profiler.finds_request()
        stop, profile, near_host, near_device, too_much = world.any_of(stop_requested(), wanted, *near)
        watch.warn(near_host, near_device, state.step, metrics)
        if profile:
            profiler.request()
        must = stop or too_much or is_last
        if must or state.step % config.checkpoint.every_steps == 0:
            _save(run, saver, metrics, must)
        if must and not is_last:
            if metrics is not None:
                metrics.record("stop", state.step, {"reason": "signal" if stop else "memory"})
            why = "" if stop else ": the ranks of a node hold more host memory than they may"
            raise Stopped(
                f"stopped after step {state.step}, saved{why}. Run the same command again to go on from there."
            )
        if state.step % config.evaluation.every_steps == 0 and not is_last:
            evaluate_run(run, corpora, metrics)


def _save(run: Run, saver: Saver, metrics: Metrics | None, must: bool) -> None:
    """Save; where the disk refuses, go on training unless this was the last chance."""
    try:
        with run.world.phases("save"):
            saver.save(run.state, must)
    finally:
        _tell_saves(saver, metrics)


def _tell_saves(saver: Saver, metrics: Metrics | None) -> None:
    """Say and record what became of saves that have ended since the last call."""
    for save in saver.ended():
        if metrics is None:
            continue
        if save.written is None:
            log_message(
                f"WARNING: no checkpoint of step {save.step}: {save.error} Training goes on; the last one stands."
            )
            metrics.record("save_failed", save.step, {"reason": str(save.error)})
            continue
        written, stall = save.written, save.stall_seconds
        background = f", {save.seconds:.1f} s in the background" if save.in_background else ""
        log_message(f"saved {written.where} ({stall:.1f} s stall{background})")
        values = {"folder": written.where, "stall_seconds": stall, "seconds": save.seconds, "bytes": written.bytes}
        metrics.record("save", save.step, values)
        for warning in written.warnings:
            log_message(f"WARNING: {warning}")


def _introduce(run: Run, corpora: Corpora, newest: str | None, metrics: Metrics) -> None:
    config, training = run.config, run.config.training
    shares = corpus_shares(corpora.loader, corpora.order.batch_sizes.num_samples(training.num_steps))
    batch = f"{training.rampup.start} to " if training.rampup is not None else ""
    epochs = f" = {shares[0].epochs:.2f} epochs" if len(shares) == 1 else ""
    log_message(
        f"{num_parameters(config.model) / 1e6:.1f} M parameters, {run.world.size} x {run.world.device.type}, "
        f"{training.precision}, {_layout(run)}; {corpora.loader.num_tokens:,} tokens, "
        f"{training.num_steps:,} steps of {batch}{training.global_batch_size} x "
        f"{config.model.sequence_length} tokens{epochs}"
    )
    for share in shares if len(shares) > 1 else []:
        log_message(
            f"corpus {share.name}: {share.num_tokens:,} tokens, {float(share.weight):.2%} of the samples, "
            f"{share.epochs:.2f} epochs{'' if share.name in corpora.held_out else ', nothing held out'}"
        )
    if newest is not None:
        log_message(f"resuming from {newest} (step {run.state.step})")
    attention = backend_of(config, run.world.device.type, ITEM_BYTES[training.precision])
    log_message(f"attention: {attention.backend} ({attention.reason})")
    values = {
        "ranks": run.world.size,
        "num_steps": training.num_steps,
        "layout": _layout(run),
        "parallel": config.parallel.model_dump(mode="json", exclude_defaults=True),
        "micro_batch_size": training.micro_batch_size,
        "precision": training.precision,
        "device": device_name(run.world.device),
        "peak_flops": metrics.peak,
        "parameters": num_parameters(config.model),
        "config_digest": durable.digest(to_json(config)),
        "resumed_from": None if newest is None else newest.rpartition("/")[2],
    }
    metrics.record("start", run.state.step, values)


def _reshaped(planned: RunConfig, config: RunConfig, step: int) -> Iterator[str]:
    """What another length of the run than the checkpoint's does to the learning rate of the steps that are left."""
    was, now, schedule = planned.training.num_steps, config.training.num_steps, config.schedule
    has_length_of_run = schedule.kind == "wsd" or (schedule.kind == "cosine" and schedule.decay_steps is None)
    if was != now and step < now and has_length_of_run:
        rate = functools.partial(learning_rate, config.optimizer.learning_rate, schedule, step)
        before = f"it was to have {rate(was):.2e}" if step < was else "the run was to end before it"
        yield (
            f"training.num_steps was {was:,} and is {now:,}: the {schedule.kind} schedule ends there now; step "
            f"{step + 1:,} has the learning rate {rate(now):.2e}, {before}"
        )


def _layout(run: Run) -> str:
    """As in `tp 2 x pp 2 x dp 2, 1f1b, zero 1`."""
    world, parallel = run.world, run.config.parallel
    lengths = {"tp": world.tp_size, "pp": world.pp_size, "dp": world.dp_size}
    words = [" x ".join(f"{axis} {length}" for axis, length in lengths.items() if length > 1)]
    zero = parallel.zero_over(world.mesh["dp_shard"].size())
    as_other = f" as {zero}: one rank shards" if zero != parallel.zero else ""
    words += [parallel.schedule if parallel.pp > 1 else "", f"zero {parallel.zero}{as_other}"]
    words += ["" if parallel.recompute == "none" else f"recompute {parallel.recompute}"]
    words += ["compiled blocks" if compose.compiles_blocks(run.config, world) else ""]
    return ", ".join(word for word in words if word)
