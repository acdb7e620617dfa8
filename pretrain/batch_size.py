"""How many samples a step takes: the global batch size, from its first value to its last.

Megatron's ramp-up (`--rampup-batch-size START INCREMENT SAMPLES`, megatron/core/num_microbatches_calculator.py): after
`c` samples the batch holds

    start + increment * floor(c * n / num_samples)    with n = (global - start) / increment, and `global` at the most

samples: a function of the samples taken and of nothing else. The quotient is exact here; Megatron computes it in
floats, so that a bound which is no whole number of samples may lie one sample later there. Yuan 13B was trained from
448 by 448 to 2,688 over its first 488,280 samples (src/pretrain_yuan_13B.sh in Shawn-IEITSystems/Yuan-1.0).

The steps of one size are a `Phase`. There are at most n + 1 of them, so that step and sample follow from each other in
as many steps of arithmetic however long the run is.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from corpus.engine.errors import UsageError
from pretrain.config import RampupConfig, TrainingConfig

TOKEN_UNITS = {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Phase:
    """Steps of one batch size: the first of them, its first sample, and the size."""

    step: int
    sample: int
    size: int


class BatchSizes:
    """The batch size of every step from `step` on, before which the run has taken `num_samples` samples.

    A run begins at (0, 0). One that goes on with other settings begins where those begin.
    """

    def __init__(
        self, global_batch_size: int, rampup: RampupConfig | None = None, step: int = 0, num_samples: int = 0
    ) -> None:
        self.phases: list[Phase] = []
        smaller = increasing_sizes(global_batch_size, rampup)
        for number, size in enumerate(smaller, start=1):
            assert rampup is not None
            bound = -(-number * rampup.num_samples // len(smaller))  # samples from which on a batch is larger
            if num_samples < bound:
                self.phases.append(Phase(step, num_samples, size))
                num_steps = -(-(bound - num_samples) // size)  # the size is looked up before each step
                step, num_samples = step + num_steps, num_samples + num_steps * size
        self.phases.append(Phase(step, num_samples, global_batch_size))

    def of_step(self, step: int) -> tuple[int, int]:
        """(first sample, number of samples) of the step that follows `step` steps."""
        phase = self.phases[bisect_right(self.phases, step, key=lambda phase: phase.step) - 1]
        if step < phase.step:
            raise ValueError(f"step {step} lies before the first of these, {phase.step}")
        return phase.sample + (step - phase.step) * phase.size, phase.size

    def step_of(self, sample: int) -> int:
        """How many steps the run had done when it took `sample`."""
        phase = self.phases[bisect_right(self.phases, sample, key=lambda phase: phase.sample) - 1]
        if sample < phase.sample:
            raise ValueError(f"sample {sample} lies before the first of these, {phase.sample}")
        return phase.step + (sample - phase.sample) // phase.size

    def num_samples(self, num_steps: int) -> int:
        """The samples that a run of `num_steps` steps takes; at least those that it has taken."""
        return self.of_step(max(num_steps, self.phases[0].step))[0]

    def steps_beyond(self, sample: int) -> int:
        """The fewest steps after which more than `sample` samples are taken."""
        return self.step_of(max(sample, self.phases[0].sample)) + 1


def num_tokens(training: TrainingConfig, sequence_length: int) -> int:
    """That a run takes, with the ramp-up of its batch."""
    batches = BatchSizes(training.global_batch_size, training.rampup)
    return batches.num_samples(training.num_steps) * sequence_length


def parse_tokens(words: str) -> int:
    """A number of tokens as people write it; raises `UsageError`, which names `--tokens`.

    >>> parse_tokens("600k"), parse_tokens("300B"), parse_tokens("1.5T"), parse_tokens("180e9"), parse_tokens("4_096")
    (600000, 300000000000, 1500000000000, 180000000000, 4096)
    """
    unit = words[-1:].lower()
    try:
        tokens = float(words[:-1]) * TOKEN_UNITS[unit] if unit in TOKEN_UNITS else float(words)
    except ValueError:
        tokens = 0.0
    if not 1 <= tokens < 1e18:
        raise UsageError(f"--tokens {words}: write a number of tokens, for example 600k, 300B, 1.5T or 180e9")
    return round(tokens)


def increasing_sizes(global_batch_size: int, rampup: RampupConfig | None) -> range:
    """The sizes before the last.

    >>> list(increasing_sizes(2688, RampupConfig(start=448, increment=448, num_samples=488_280)))
    [448, 896, 1344, 1792, 2240]
    """
    return range(0) if rampup is None else range(rampup.start, global_batch_size, rampup.increment)


def local_batches(training: TrainingConfig, batch_size: int, num_ranks: int) -> tuple[int, int]:
    """Samples of a step of `batch_size` and of a micro-batch on each of `num_ranks` data-parallel ranks.

    Raises:
        UsageError: the batch does not divide over the ranks, or a rank's part into micro-batches.
    """
    num_local, rest = divmod(batch_size, num_ranks)
    micro_batch_size = min(training.micro_batch_size, max(1, num_local))
    if rest or num_local % micro_batch_size:
        unit = micro_batch_size * num_ranks
        advice = f"Use --set training.global_batch_size={-(-training.global_batch_size // unit) * unit}"
        if training.rampup is not None:
            advice = f"Let training.global_batch_size, rampup.start and rampup.increment be multiples of {unit}"
        raise UsageError(
            f"a batch of {batch_size} samples (training.global_batch_size {training.global_batch_size}) on {num_ranks} "
            f"data-parallel ranks does not divide into micro-batches of {micro_batch_size}. {advice}"
        )
    return num_local, micro_batch_size


def check_batch_sizes(training: TrainingConfig, num_ranks: int) -> None:
    """Raises `UsageError` where any batch size of the run does not divide over the ranks; it names the size."""
    for batch_size in (*increasing_sizes(training.global_batch_size, training.rampup), training.global_batch_size):
        local_batches(training, batch_size, num_ranks)
