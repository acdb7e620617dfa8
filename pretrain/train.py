"""The training loop. One step fits one screen, and is a function of the configuration and of counters.

The loss is the sum over target tokens divided by their number in the global batch, known before the first
backward: it does not depend on micro-batches or ranks. Every rank agrees that loss and gradient norm are
finite before a weight changes. SIGTERM and SIGINT finish the step, save and exit with 75: the same command
goes on from there, and from the newest checkpoint after any other end, bit for bit on as many ranks and
within rounding on any other number.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from corpus.engine import durable
from corpus.engine.errors import Stopped, UsageError, WenhaiError
from pretrain import checkpoint
from pretrain.checkpoint import Identity, Order, State
from pretrain.config import RunConfig, with_vocab_size
from pretrain.data import Loader, data_digest, open_loader
from pretrain.metrics import Metrics, peak_flops, say
from pretrain.model import GPT, loss_sum
from pretrain.optim import clip_grad_norm, create_state, learning_rate, new_optimizer, set_learning_rate
from pretrain.parallel import fsdp, mesh
from pretrain.parallel.mesh import World
from pretrain.parallel.params import init_parameters, num_parameters

if TYPE_CHECKING:
    from pretrain.evaluate import HeldOut
    from tokenizer.model import Tokenizer


@dataclass(frozen=True)
class StepResult:
    """What one step measured; `applied` is False if it was not finite and changed nothing."""

    loss: float  # nats per target token of the global batch
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int
    applied: bool


@dataclass
class Run:
    """The parts of a run in this process."""

    config: RunConfig
    world: World
    loader: Loader
    model: GPT
    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    state: State = field(default_factory=State)


def new_run(config: RunConfig, world: World, loader: Loader) -> Run:
    """A model with its first weights, laid out over the ranks, and its optimizer.

    Raises:
        UsageError: the batch does not divide over the ranks.
    """
    local_batches(config, world.dp_size)
    with torch.device("meta"):
        model = GPT(config.model)
    fsdp.shard(model, world, config.parallel.zero, config.training.precision)
    model.to_empty(device=world.device)
    model.tie()
    parameters = dict(model.named_parameters())
    init_parameters(parameters, config.model, config.training.seed)
    optimizer = new_optimizer(parameters, config.model, config.optimizer)
    create_state(optimizer)
    run = Run(config, world, loader, model, parameters, optimizer)
    note_order(run)
    return run


def note_order(run: Run) -> None:
    """Let the state say in which order the coming samples are taken, if that is a new one; `trace` asks it."""
    state, training = run.state, run.config.training
    now = Order(state.step, state.num_samples, training.global_batch_size, training.seed)
    if not state.orders or replace(state.orders[-1], step=now.step, num_samples=now.num_samples) != now:
        state.orders.append(now)


def local_batches(config: RunConfig, num_ranks: int) -> tuple[int, int]:
    """Samples of a step and of a micro-batch on each of `num_ranks` data-parallel ranks.

    Raises:
        UsageError: the global batch does not divide over the ranks, or a rank's part into micro-batches.
    """
    training = config.training
    num_local, rest = divmod(training.global_batch_size, num_ranks)
    micro_batch_size = min(training.micro_batch_size, max(1, num_local))
    if rest or num_local % micro_batch_size:
        raise UsageError(
            f"training.global_batch_size {training.global_batch_size} on {num_ranks} data-parallel ranks does not "
            f"divide into micro-batches of {micro_batch_size}. Use --set training.global_batch_size="
            f"{-(-training.global_batch_size // (micro_batch_size * num_ranks)) * micro_batch_size * num_ranks}"
        )
    return num_local, micro_batch_size


def train_step(run: Run) -> StepResult:
    """Train on the next global batch and advance the counters."""
    training, state, world = run.config.training, run.state, run.world
    rate = learning_rate(run.config.optimizer.learning_rate, run.config.schedule, state.step, training.num_steps)
    micro_batches: list[MicroBatch] = []
    with world.together():  # a damaged shard is met by the rank that reads it
        micro_batches = list(read_micro_batches(run))
    num_tokens = int(world.sum_over_data(sum(batch.num_targets for batch in micro_batches))[0])

    local_loss = forward_backward(run, micro_batches, num_tokens)
    loss = world.sum_over_data(local_loss)[0]
    norm = clip_grad_norm(run.parameters.values(), training.max_grad_norm)
    (is_bad,) = world.any_of(not (math.isfinite(loss) and math.isfinite(norm)))
    if not is_bad:  # every rank agrees before anything changes
        set_learning_rate(run.optimizer, rate)
        run.optimizer.step()
    run.optimizer.zero_grad()

    state.step += 1
    state.num_samples += training.global_batch_size
    state.num_tokens += num_tokens
    state.num_bad_steps += is_bad
    state.num_bad_in_a_row = state.num_bad_in_a_row + 1 if is_bad else 0
    return StepResult(loss, norm, rate, num_tokens, applied=not is_bad)


@dataclass(frozen=True)
class MicroBatch:
    """Tensors [B, T] on the device; `num_targets` of this rank's tokens count in the loss."""

    tokens: Tensor
    targets: Tensor
    document_ids: Tensor | None
    num_targets: int


def read_micro_batches(run: Run) -> Iterator[MicroBatch]:
    """This rank's part of the next global batch, in micro-batches."""
    world = run.world
    num_local, micro_batch_size = local_batches(run.config, world.dp_size)
    first = run.state.num_samples + world.dp_rank * num_local
    for start in range(first, first + num_local, micro_batch_size):
        batch = run.loader.batch(start, micro_batch_size)
        tokens, targets = torch.from_numpy(batch.tokens.copy()), torch.from_numpy(batch.targets.copy())
        documents = torch.from_numpy(batch.document_ids) if run.config.model.document_mask else None
        yield MicroBatch(
            tokens.to(world.device),
            targets.to(world.device),
            documents if documents is None else documents.to(world.device),
            int((targets >= 0).sum()),
        )


def forward_backward(run: Run, micro_batches: list[MicroBatch], num_tokens: int) -> Tensor:
    """Accumulate the gradients of this rank's part of the loss, and return that part."""
    total = torch.zeros((), device=run.world.device)
    for index, batch in enumerate(micro_batches):
        fsdp.before_micro_batch(run.model, run.config.parallel.zero, is_last=index == len(micro_batches) - 1)
        loss = loss_sum(run.model(batch.tokens, batch.document_ids), batch.targets) / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


def train(config: RunConfig, data: Path, out: Path, tokenizer_path: Path | None = None) -> None:
    """Train until `num_steps`, from the newest checkpoint in `out` if there is one; on every rank of the run.

    Prints the held-out bits per character and a sample on stdout at the end, and writes them to
    `out`/summary.json.

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
            corpus = open_corpus(config, data, tokenizer_path)
            config = with_vocab_size(config, corpus.tokenizer.vocab_size)
        run = new_run(config, world, corpus.loader)
        newest = checkpoint.newest(out)
        if newest is not None:
            run.state = checkpoint.load(newest, run.parameters, run.optimizer, config, corpus.identity, world)
            note_order(run)
        metrics: Metrics | None = None
        with world.together():
            if world.rank == 0:
                metrics = stack.enter_context(_metrics(run, corpus, out))
                _introduce(run, corpus, newest)
        _loop(run, corpus, out, metrics, stop_requested)
        _finish(run, corpus, out, metrics)


@dataclass(frozen=True)
class Corpus:
    """What a run reads, and what it is known by."""

    loader: Loader
    tokenizer: Tokenizer
    held_out: HeldOut
    identity: Identity
    tokens_per_character: float
    train_texts: Callable[[], list[str]]  # for the character baselines; read when they are wanted


def open_corpus(config: RunConfig, data: Path, tokenizer_path: Path | None) -> Corpus:
    """The token shards below `data` and the tokenizer that made them.

    Raises:
        WenhaiError: shards are missing or damaged, or the tokenizer is another one.
    """
    from pretrain.evaluate import MAX_BASELINE_TOKENS, read_held_out
    from tokenizer.model import Tokenizer
    from tokenizer.shards import open_split

    shards = open_split(data, config.data.train_split)
    loader = open_loader(data, config.data.train_split, config.model.sequence_length, config.training.seed)
    tokenizer = Tokenizer(tokenizer_path or data)
    if tokenizer.sha256 != shards[0].tokenizer_sha256:
        raise UsageError(f"{tokenizer.path}: is not the tokenizer of {data}. Name that one with --tokenizer.")
    metas = [shard.meta for shard in shards]
    return Corpus(
        loader,
        tokenizer,
        read_held_out(data, config.data.validation_split, tokenizer, config.evaluation.max_tokens),
        Identity(
            data=data_digest(shards),
            tokenizer=tokenizer.path,
            tokenizer_sha256=tokenizer.sha256,
        ),
        sum(meta.num_tokens for meta in metas) / max(1, sum(meta.num_characters for meta in metas)),
        lambda: read_held_out(data, config.data.train_split, tokenizer, MAX_BASELINE_TOKENS).texts,
    )


def _loop(run: Run, corpus: Corpus, out: Path, metrics: Metrics | None, stop_requested: Callable[[], bool]) -> None:
    config, state, world = run.config, run.state, run.world
    while state.step < config.training.num_steps:
        result = train_step(run)
        if metrics is not None:
            metrics.step(state.step, result.loss, result.grad_norm, result.learning_rate, result.num_tokens)
        if not result.applied:
            _warn_or_stop(run, result, metrics)

        is_last = state.step == config.training.num_steps
        (stop,) = world.any_of(stop_requested())
        if stop or is_last or state.step % config.checkpoint.every_steps == 0:
            _save(run, corpus.identity, out, metrics, must=stop or is_last)
        if stop and not is_last:
            raise Stopped(f"stopped after step {state.step}, saved. Run the same command again to go on from there.")
        if state.step % config.evaluation.every_steps == 0 and not is_last:
            _evaluate(run, corpus, metrics)


def _save(run: Run, identity: Identity, out: Path, metrics: Metrics | None, must: bool) -> None:
    """Save; where the disk refuses, go on training unless this was the last chance."""
    try:
        folder = checkpoint.save(out, run.state, run.parameters, run.optimizer, run.config, identity, run.world)
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


def _evaluate(run: Run, corpus: Corpus, metrics: Metrics | None) -> float:
    """Held-out bits per character; all ranks take part."""
    from pretrain.evaluate import evaluate, logits_score

    result = evaluate(
        logits_score(run.model, run.config.model.document_mask),
        corpus.held_out,
        run.config.model.sequence_length,
        run.config.training.micro_batch_size,
        run.world.device,
        run.world,
    )
    fsdp.reshard(run.model)
    if metrics is not None:
        values = {"loss": result.loss, "bits_per_character": result.bits_per_character}
        metrics.record("validation", run.state.step, values)
        say(f"held out: {result.bits_per_character:.3f} bits/char, loss {result.loss:.4f}")
        metrics.restart_clock()
    return result.bits_per_character


def _sample(run: Run, corpus: Corpus) -> str:
    """A text that continues the prompt; all ranks take part, rank 0's logits decide."""
    from pretrain.generate import Sampling, generate, stream_text

    def logits(tokens: Tensor, document_ids: Tensor | None) -> Tensor:
        last: Tensor = run.model(tokens, document_ids)[:, -1:].float()
        dist.broadcast(last, src=0)
        return last

    config = run.config
    tokens = generate(
        logits,
        corpus.tokenizer.encode(config.evaluation.prompt),
        config.evaluation.sample_tokens,
        Sampling(seed=config.training.seed),
        sequence_length=config.model.sequence_length,
        eod=corpus.tokenizer.eod,
        document_mask=config.model.document_mask,
        device=run.world.device,
    )
    return config.evaluation.prompt + "".join(stream_text(tokens, corpus.tokenizer.piece_bytes))


def _finish(run: Run, corpus: Corpus, out: Path, metrics: Metrics | None) -> None:
    """The last evaluation beside two character models of the same text, and a sample."""
    from pretrain.evaluate import character_baselines

    bits = _evaluate(run, corpus, metrics)
    sample = _sample(run, corpus)
    baselines: dict[str, float] = {}
    with run.world.together():
        if metrics is not None:
            baselines = character_baselines(corpus.train_texts(), corpus.held_out.texts)
            summary = {
                "steps": run.state.step,
                "tokens": run.state.num_tokens,
                "bad_steps": run.state.num_bad_steps,
                "parameters": num_parameters(run.config.model),
                "held_out_bits_per_character": bits,
                **{f"{name}_bits_per_character": value for name, value in baselines.items()},
            }
            durable.write_json(out / "summary.json", summary | {"sample": sample})
    if metrics is not None:
        print(f"held-out bits per character: {bits:.3f}")
        for name, value in baselines.items():
            print(f"character {name} model:     {value:.3f}")
        print(f"sample: {sample}", flush=True)


def _warn_or_stop(run: Run, result: StepResult, metrics: Metrics | None) -> None:
    state, limit = run.state, run.config.training.max_bad_steps
    if metrics is not None:
        metrics.record("not_finite", state.step, {"loss": result.loss, "grad_norm": result.grad_norm})
        say(
            f"WARNING: step {state.step}: loss {result.loss}, gradient norm {result.grad_norm}; no weight changed. "
            f"`python -m pretrain trace --step {state.step}` lists its documents."
        )
    if state.num_bad_in_a_row >= limit:
        raise WenhaiError(
            f"step {state.step}: loss or gradient was not finite {limit} times in a row. Lower "
            "optimizer.learning_rate, look at the documents (python -m pretrain trace), or resume with another seed."
        )


def _metrics(run: Run, corpus: Corpus, out: Path) -> Metrics:
    peak = peak_flops(run.world.device, run.config.training.precision)
    return Metrics(
        out,
        run.config.metrics,
        run.config.model,
        num_steps=run.config.training.num_steps,
        tokens_per_character=corpus.tokens_per_character,
        peak=peak * run.world.size if peak else None,
        device=run.world.device,
    )


def _introduce(run: Run, corpus: Corpus, newest: Path | None) -> None:
    config, epoch = run.config, corpus.loader.num_windows
    samples = config.training.num_steps * config.training.global_batch_size
    say(
        f"{num_parameters(config.model) / 1e6:.1f} M parameters, {run.world.size} x {run.world.device.type}, "
        f"{config.training.precision}, zero {config.parallel.zero}; {corpus.loader.num_tokens:,} tokens, "
        f"{config.training.num_steps:,} steps of {config.training.global_batch_size} x "
        f"{config.model.sequence_length} tokens = {samples / epoch:.2f} epochs"
    )
    if newest is not None:
        say(f"resuming from {newest} (step {run.state.step})")


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
