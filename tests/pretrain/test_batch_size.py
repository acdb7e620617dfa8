"""The ramp-up of the batch size: Megatron's values, step and sample from each other, sizes that do not divide
refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.batch_size import BatchSizes, check_batch_sizes, local_batches, parse_tokens
from pretrain.config import RampupConfig, TrainingConfig

YUAN = RampupConfig(start=448, increment=448, num_samples=488_280)


def megatron_batch_size(consumed: int, global_batch_size: int, rampup: RampupConfig) -> int:
    """What megatron-core 0.16 computes, in its own float arithmetic."""
    num_increments = (global_batch_size - rampup.start) // rampup.increment
    if consumed > rampup.num_samples:
        return global_batch_size
    return rampup.start + int(consumed / (rampup.num_samples / num_increments)) * rampup.increment


def test_yuan_is_ramped_up_as_megatron_does() -> None:
    """The loop of Megatron's own trainer, step by step, far past the end of the ramp-up."""
    sizes, consumed, found = BatchSizes(2688, YUAN), 0, []
    for step in range(1000):
        size = megatron_batch_size(consumed, 2688, YUAN)
        assert sizes.of_step(step) == (consumed, size)
        found.append(size)
        consumed += size
    assert sorted(set(found)) == [448, 896, 1344, 1792, 2240, 2688]
    assert sizes.num_samples(1000) == consumed
    assert [found.index(size) for size in sorted(set(found))] == [phase.step for phase in sizes.phases]


ramps = st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(0, 6), st.integers(1, 300)).map(
    lambda r: (r[0] + r[1] * r[2], RampupConfig(start=r[0], increment=r[1], num_samples=r[3]))
)


@given(ramps, st.integers(0, 40), st.integers(0, 200))
def test_step_and_sample_follow_from_each_other(
    ramp: tuple[int, RampupConfig], first_step: int, first_sample: int
) -> None:
    """Against taking the steps one by one, for a run that begins anywhere, also in the middle of the ramp-up."""
    global_batch_size, rampup = ramp
    sizes = BatchSizes(global_batch_size, rampup, first_step, first_sample)
    sample = first_sample
    for step in range(first_step, first_step + 60):
        increments = (global_batch_size - rampup.start) // rampup.increment
        size = rampup.start + rampup.increment * min(increments, sample * increments // rampup.num_samples)
        assert sizes.of_step(step) == (sample, size)
        assert {sizes.step_of(sample), sizes.step_of(sample + size - 1)} == {step}
        sample += size
    assert sizes.num_samples(first_step + 60) == sample
    assert sizes.num_samples(first_step - 1) == sizes.num_samples(0) == first_sample, "a run shortened below its past"
    for wanted in range(first_sample, sample):
        steps = sizes.steps_beyond(wanted)
        assert sizes.num_samples(steps - 1) <= wanted < sizes.num_samples(steps)
    assert sizes.steps_beyond(first_sample - 1) == first_step + 1
    assert len(sizes.phases) <= (global_batch_size - rampup.start) // rampup.increment + 1


def test_without_a_ramp_up_all_batches_are_alike() -> None:
    sizes = BatchSizes(8)
    assert sizes.of_step(10**12) == (8 * 10**12, 8)
    assert sizes.step_of(8 * 10**12 - 1) == 10**12 - 1


def test_what_lies_before_the_first_step_is_a_bug_of_the_caller() -> None:
    sizes = BatchSizes(8, None, step=3, num_samples=24)
    with pytest.raises(ValueError, match="step 2 lies before"):
        sizes.of_step(2)
    with pytest.raises(ValueError, match="sample 23 lies before"):
        sizes.step_of(23)


def training(global_batch_size: int, micro_batch_size: int, rampup: RampupConfig | None = None) -> TrainingConfig:
    return TrainingConfig(
        num_steps=1, global_batch_size=global_batch_size, micro_batch_size=micro_batch_size, rampup=rampup
    )


def test_a_batch_is_divided_over_ranks_and_micro_batches() -> None:
    assert local_batches(training(24, 4), 24, 3) == (8, 4)
    assert local_batches(training(24, 4), 6, 3) == (2, 2), "a small batch makes small micro-batches"
    with pytest.raises(UsageError, match=r"a batch of 10 samples.* on 4 data-parallel ranks.*global_batch_size=16"):
        local_batches(training(10, 3), 10, 4)


def test_every_size_of_a_ramp_up_must_divide() -> None:
    """Megatron meets the size that does not when it gets there; here the run does not start."""
    rampup = RampupConfig(start=4, increment=2, num_samples=100)
    check_batch_sizes(training(8, 1, rampup), 2)
    with pytest.raises(UsageError, match=r"a batch of 6 samples.*rampup\.start and rampup\.increment.* multiples of 4"):
        check_batch_sizes(training(8, 1, rampup), 4)
    with pytest.raises(UsageError, match="a batch of 2 samples"):  # though no step takes it: the first has all at once
        check_batch_sizes(training(4, 1, RampupConfig(start=2, increment=2, num_samples=1)), 4)


@pytest.mark.parametrize("words", ["", "k", "many", "0", "-1k", "nan", "inf", "1e30"])
def test_what_is_no_number_of_tokens(words: str) -> None:
    with pytest.raises(UsageError, match="write a number of tokens"):
        parse_tokens(words)
