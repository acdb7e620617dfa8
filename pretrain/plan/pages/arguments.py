"""What a command line of `python -m pretrain plan` asks, read and checked; its search, once, and single predictions."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch

from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from pretrain.batch_size import num_tokens, parse_tokens
from pretrain.config import ParallelConfig, RunConfig, named_configs, padded_vocab_size, read_config
from pretrain.plan import auto, naming
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster, named_clusters
from pretrain.plan.pages import rules, scaling
from pretrain.plan.pages.rules import Rule
from pretrain.plan.pages.scaling import Scaling
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.rejected import check_cluster
from pretrain.plan.search.search import Constraints, Plans, search
from pretrain.workload.framework_profiles import ALL, OURS, FrameworkProfile, find_software

OUTLINED: dict[
    str, dict[str, Any]
] = {  # what a configuration that cannot be trained with leaves out, where a plan needs a value
    "optimizer": {"learning_rate": 1e-4},
    "training": {"num_steps": 100_000, "micro_batch_size": 1, "precision": "bf16"},
    "checkpoint": {"every_steps": 1000},
    "evaluation": {"every_steps": 1000},
}


@dataclass(frozen=True)
class Question:
    """What is to be planned."""

    name: str  # of the configuration
    config: RunConfig
    cluster: Cluster
    devices: int
    software: FrameworkProfile
    tokens: int
    constraints: Constraints
    keep: int  # layouts whose pipeline is simulated
    scaling: Sequence[int]  # numbers of devices

    @cached_property
    def plans(self) -> Plans:
        """All layouts that fit; searched for once."""
        return search(
            self.config, self.devices, self.cluster, self.software, keep=self.keep, constraints=self.constraints
        )

    @cached_property
    def rules(self) -> list[Rule]:
        """Of design, for this model and cluster."""
        return rules.rules(self.config, self.devices, self.cluster, self.software)

    @cached_property
    def curves(self) -> Scaling:
        """Over numbers of devices."""
        return scaling.curves(self.config, self.scaling, self.cluster, self.software)

    def predict(self, config: RunConfig) -> Prediction:
        """One layout."""
        return predict(config, self.devices, self.cluster, self.software)

    def by_others(self, prediction: Prediction) -> dict[str, Prediction]:
        """The same layout as other programs would run it, by their names; a pipeline in its closed form."""
        found = {}
        for software in ALL.values():
            parallel = _of_software(prediction.config.parallel, software)
            config = prediction.config.model_copy(update={"parallel": parallel})
            with contextlib.suppress(UsageError):
                if software is not self.software:
                    found[software.name] = predict(config, self.devices, self.cluster, software, exact=False)
        return found

    @cached_property
    def configured(self) -> Prediction | str:
        """The layout that the configuration has, or why it is none of these devices."""
        try:
            return self.predict(self.config)
        except UsageError as error:
            return str(error)

    def find(self, words: str, option: str) -> Prediction:
        """A layout by its rank or in words."""
        if not words.isdecimal():
            return self.predict(naming.parse_layout(words, self.config, self.devices, option))
        found = self.plans.layouts
        if not 1 <= int(words) <= len(found):
            raise UsageError(
                f"{option} {words}: there are ranks 1 to {len(found):,}, or name a layout as in tp=8,pp=4,mbs=1"
            )
        return self.predict(found[int(words) - 1].config)  # those beyond the first ones were not simulated


def parse_question(args: argparse.Namespace) -> Question:
    """The question of a command line.

    Raises:
        UsageError: what is not known or not possible.
    """
    if args.config is None:
        raise UsageError(f"--config: name a TOML file or one of {', '.join(named_configs())}")
    for option in ("gpus", "top", "measure"):
        if (number := getattr(args, option)) is not None and number < 1:
            raise UsageError(f"--{option} {number}: it must be 1 or more")
    software = find_software(args.software)
    config = _load(args.config, args.set, args.layout)
    config = config.model_copy(update={"parallel": _of_software(config.parallel, software)})
    cluster = load_cluster(args.cluster) if args.cluster else _here(config)
    devices = args.gpus or _devices_of(args.layout) or cluster.devices_per_node
    for number in (devices, *(args.scaling or ())):
        check_cluster(number, cluster)
    if args.measure and args.layout:
        raise UsageError("--measure runs the best layouts of a search, and --layout names one: leave one of them out")
    if args.refitted and not args.measure:
        raise UsageError(f"--refitted {args.refitted}: nothing is measured. Add --measure 3")
    return Question(
        name=args.config,
        config=config,
        cluster=cluster,
        devices=devices,
        software=software,
        tokens=parse_tokens(args.tokens) if args.tokens else num_tokens(config.training, config.model.sequence_length),
        constraints=_constraints(args, software),
        keep=max(50, args.top),
        scaling=args.scaling or (),
    )


def _devices_of(layout: str | None) -> int | None:
    """The devices that `tp=..,pp=..,dp=..` are; None where one of the three is not said."""
    words = naming.parse_words(layout, "--layout") if layout else {}
    return words["tp"] * words["pp"] * words["dp"] if {"tp", "pp", "dp"} <= words.keys() else None


def _here(config: RunConfig) -> Cluster:
    """The cluster with the GPUs of this machine; raises `UsageError`, which lists all clusters, where there are
    none."""
    if not torch.cuda.is_available() and config.parallel.cluster is None:
        raise UsageError(
            f"--cluster: there is no GPU here, so name the machine: {', '.join(named_clusters())}, or a TOML file. "
            "`python -m pretrain plan calibrate --out FILE` measures this one"
        )
    return auto.cluster_for(config)


def _load(name: str, overrides: Sequence[str], layout: str | None) -> RunConfig:
    """The configuration; of one that only outlines a model, with what a plan depends on and `OUTLINED` for the rest."""
    values, where = read_config(name, overrides)
    is_whole = all(
        field in _section(values, section)
        for section in OUTLINED
        for field, about in RunConfig.model_fields[section].annotation.model_fields.items()  # type: ignore[union-attr]
        if about.is_required()
    )
    return parse(RunConfig, values if is_whole else _outlined(values, layout, where), where, overrides)


def _of_software(parallel: ParallelConfig, software: FrameworkProfile) -> ParallelConfig:
    """As another program runs what it is not told: without sequence parallelism if it has none, gradients reduced once
    a step."""
    usual: dict[str, Any] = {} if software.splits_sequence else {"sequence_parallel": False}
    if software.operations != OURS.operations and "zero" not in parallel.model_fields_set:
        usual["zero"] = 1
    return parallel.model_copy(update=usual)


def _outlined(values: Mapping[str, Any], layout: str | None, where: str) -> dict[str, Any]:
    """Sections get what they leave out; the batch may also be in the words of a layout."""
    filled = {section: usual | _section(values, section) for section, usual in OUTLINED.items()}
    batch = (naming.parse_words(layout, "--layout") if layout else {}).get("global_batch_size")
    if filled["training"].setdefault("global_batch_size", batch) is None:
        raise UsageError(
            f"{where}: how many samples has a step? Add global_batch_size = 1536 below [training], or gbs=1536 "
            "to --layout"
        )
    model = _section(values, "model")
    if isinstance(entries := model.get("vocab_size"), int) and "padded_vocab_size" not in model:
        model["padded_vocab_size"] = padded_vocab_size(entries)
    wrong = {name: section for name, section in values.items() if not isinstance(section, dict)}
    return {**values, **filled, **({"model": model} if model else {}), **wrong}


def _section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = values.get(name)
    return dict(section) if isinstance(section, dict) else {}


def _constraints(args: argparse.Namespace, software: FrameworkProfile) -> Constraints:
    words = ",".join([*args.only, *([f"schedule={args.schedule}"] if args.schedule else [])])
    chosen: dict[str, tuple[Any, ...]] = {} if software.splits_sequence else {"sequence_parallel": (False,)}
    if words or args.only:
        chosen |= naming.parse_constraints(words, [field.name for field in fields(Constraints)])
    return Constraints(**chosen)
