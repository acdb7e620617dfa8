"""What an ablation is: arms and their text, seeds, steps, and the runs; what would make it unfair is refused.

All runs have one configuration but for two values: the seed, which decides the initial weights and the order of the
text, and the arm's folder. So run k of every arm begins with the same weights and sees as many tokens in as many steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.batch_size import BatchSizes, num_tokens
from pretrain.config import RunConfig, corpus_folders, load_config, to_json
from tokenizer.shards import TokenShard, open_split

RECORD = "ablation.json"
FORMAT = 1
MANY_EPOCHS = 4.0
"""Up to some four epochs repeated text is about as good as new (Muennighoff et al. 2023, arXiv:2305.16264)."""

OWN = {  # what the ablation says itself, and how to say it to it
    "training.num_steps": "Use --steps or --tokens",
    "checkpoint.every_steps": "Use --points",
    "checkpoint.keep_every_steps": "Use --points",
    "checkpoint.url": "The checkpoints of an ablation lie below --out",
    "evaluation.every_steps": "Use --points",
    "evaluation.sample_tokens": "An ablation writes no samples",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Arm:
    """A build of the corpus under a name."""

    name: str
    folder: Path
    shards: tuple[TokenShard, ...]  # of the training split

    @property
    def num_tokens(self) -> int:
        """Of the training split."""
        return sum(shard.num_tokens for shard in self.shards)


@dataclass(frozen=True)
class Run:
    """One model: an arm and a seed."""

    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        """Of its folder below OUT/runs."""
        return f"{self.arm.name}-seed{self.seed}"


@dataclass(frozen=True)
class Plan:
    """All runs of an ablation."""

    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    config_name: str
    overrides: tuple[str, ...]  # of all runs
    config: RunConfig  # of the first seed

    @property
    def runs(self) -> list[Run]:
        """A seed of every arm before the next seed, so that what is there early can be compared."""
        return [Run(arm, seed) for seed in self.seeds for arm in self.arms]

    @property
    def num_steps(self) -> int:
        return self.config.training.num_steps

    @property
    def measured_steps(self) -> list[int]:
        """After which a checkpoint is kept and measured, the last step among them."""
        every = self.config.checkpoint.every_steps
        return [*range(every, self.num_steps, every), self.num_steps]

    @property
    def num_tokens(self) -> int:
        """That each run takes."""
        return num_tokens(self.config.training, self.config.model.sequence_length)

    def epochs(self, arm: Arm) -> float:
        """How often a run reads the arm's text."""
        length = self.config.model.sequence_length
        return self.num_tokens // length / max(1, arm.num_tokens // length)

    def overrides_of(self, run: Run) -> list[str]:
        """The `--set` of a run's command line."""
        return [*self.overrides, f"training.seed={run.seed}"]

    def warnings(self) -> list[str]:
        """What makes the comparison say something else than it seems to."""
        return [
            f"{arm.name}: its text is read {self.epochs(arm):.1f} times. Beyond some {MANY_EPOCHS:g} epochs repeated "
            "text teaches less and less, and that is part of what is compared"
            for arm in self.arms
            if self.epochs(arm) > MANY_EPOCHS
        ]


def new_plan(
    arms: Sequence[str],
    config_name: str,
    overrides: Sequence[str],
    *,
    num_seeds: int,
    num_steps: int | None = None,
    least_tokens: int | None = None,
    points: int = 5,
) -> Plan:
    """The plan of a command line.

    Args:
        arms: `NAME=FOLDER` of each, the one that others are compared to first.
        config_name: a TOML file, or the name of one that comes with the package.
        overrides: `a.b=value`.
        num_seeds: from the configuration's seed upwards.
        num_steps: of each run; without it
        least_tokens: that each run takes at least; without that, the configuration's steps.
        points: of a learning curve, each a checkpoint that is kept.

    Raises:
        UsageError: the arms cannot be compared, or the configuration cannot be used.
        ShardError: token shards are damaged.
    """
    if num_seeds < 1 or points < 1:
        raise UsageError("--seeds and --points must be 1 or more")
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in OWN:
            raise UsageError(
                f"--set {override}: the runs of an ablation differ in nothing but seed and text. {OWN[key]}"
            )
    config = load_config(config_name, overrides)
    if config.checkpoint.url is not None:
        raise UsageError(f"--config {config_name}: checkpoint.url. {OWN['checkpoint.url']}: leave it out")
    if least_tokens is not None and num_steps is None:
        num_steps = steps_for(config, least_tokens)
    num_steps = config.training.num_steps if num_steps is None else num_steps
    every = math.ceil(num_steps / points)
    own = {
        "training.num_steps": num_steps,
        "checkpoint.every_steps": every,
        "checkpoint.keep_every_steps": every,
        "evaluation.every_steps": num_steps,  # a run's own text alone: no comparison
        "evaluation.sample_tokens": 0,
    }
    words = (*overrides, *(f"{key}={value}" for key, value in own.items()))
    config = load_config(config_name, words)
    seeds = tuple(config.training.seed + number for number in range(num_seeds))
    return Plan(open_arms(arms, config), seeds, config_name, words, config)


def steps_for(config: RunConfig, least_tokens: int) -> int:
    """The fewest steps that take `least_tokens` tokens, 1 or more."""
    batches = BatchSizes(config.training.global_batch_size, config.training.rampup)
    return batches.steps_beyond(-(-least_tokens // config.model.sequence_length) - 1)


def open_arms(words: Sequence[str], config: RunConfig) -> tuple[Arm, ...]:
    """The arms of `NAME=FOLDER`, two or more with the tokens of one tokenizer.

    Raises:
        UsageError: they are not; what to do is said.
    """
    arms: list[Arm] = []
    for word in words:
        name, equals, folder = word.partition("=")
        if not equals or not folder or not _NAME.fullmatch(name):
            raise UsageError(f"--arm {word}: write NAME=FOLDER, the name in letters, digits, '.', '_' and '-'")
        if "://" in folder:
            raise UsageError(f"--arm {word}: the builds of an ablation are read from a local disk. Copy it here first")
        corpus_folders(config.data, folder)  # refuses a configuration that names corpora
        shards = tuple(open_split(Path(folder), config.data.train_split))
        if not any(shard.num_tokens for shard in shards):
            raise UsageError(f"--arm {word}: has no {config.data.train_split} documents")
        arms.append(Arm(name, Path(folder), shards))
    if len(arms) < 2:
        raise UsageError("an ablation compares two builds or more: --arm filtered=build/a --arm unfiltered=build/b")
    _check_together(arms)
    return tuple(arms)


def _check_together(arms: Sequence[Arm]) -> None:
    names = [arm.name for arm in arms]
    firsts = [arm.shards[0].prefix.resolve() for arm in arms]
    for arm, first in zip(arms, firsts, strict=True):
        if names.count(arm.name) > 1:
            raise UsageError(f"--arm {arm.name}: is two arms. Give each a name of its own")
        if firsts.count(first) > 1:
            raise UsageError(f"--arm {arm.name}={arm.folder}: another arm is the same text. Name another build")
        if arm.shards[0].identity != arms[0].shards[0].identity:
            raise UsageError(
                f"--arm {arm.name}={arm.folder}: its tokens are of another tokenizer than those of {arms[0].folder}, "
                "and the models would differ in more than their text. Encode it with that one: python -m tokenizer "
                f"run --recipe RECIPE --out {arm.folder} --tokenizer {arms[0].folder}"
            )


def record(plan: Plan, data: Mapping[str, str]) -> dict[str, Any]:
    """OUT/ablation.json: what may not change between two commands on one folder.

    Args:
        data: what each arm's tokens are known by.
    """
    return {"format": FORMAT, "config": to_json(plan.config), "arms": dict(data)}


def check_record(path: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The record to write: arms that earlier commands had stay in it, so that seeds and arms can be added.

    Raises:
        UsageError: the folder holds an ablation of other settings, or of another text under an arm's name.
    """
    if not path.exists():
        return dict(wanted)
    found = durable.read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("arms"), dict):
        raise UsageError(f"{path}: is no record of an ablation of this version. Give another --out")
    changed = sorted(_differing(found["config"], wanted["config"]))
    if changed:
        raise UsageError(
            f"{path.parent}: holds an ablation with another {', '.join(changed)}. Give another --out, or the same "
            "settings"
        )
    for name, digest in wanted["arms"].items():
        if found["arms"].get(name, digest) != digest:
            raise UsageError(
                f"{path.parent}: arm {name} was another text when its runs began. Give it another name, or another "
                "--out"
            )
    return {**wanted, "arms": {**found["arms"], **wanted["arms"]}}


def _differing(one: Any, other: Any, prefix: str = "") -> set[str]:
    """The keys, as `a.b`, in which two objects differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        dot = f"{prefix}." if prefix else ""
        return set().union(
            *(_differing(one.get(key), other.get(key), f"{dot}{key}") for key in one.keys() | other.keys())
        )
    return set() if one == other else {prefix}
