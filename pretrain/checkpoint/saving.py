"""The order of a save: files, then the commit, then older checkpoints go. All ranks take part; each step fails on
all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from corpus.engine.durable import write_bytes, write_json
from corpus.engine.errors import LockHeld, WenhaiError
from pretrain.checkpoint.places import Place
from pretrain.checkpoint.records import (
    TOKENIZER,
    Identity,
    describe,
    new_commit,
    refusals,
    saved_json,
    state_json,
)
from pretrain.checkpoint.shards import SHARD_FILE, Part, Plan, make_plan, parts_of, tensors_of, write_shard
from pretrain.config import CheckpointConfig, RunConfig
from pretrain.parallel.base.mesh import World
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.run_folder import step_folder, step_name, step_of
from pretrain.training.state import State


@dataclass(frozen=True)
class Contents:
    """What a checkpoint is made of. `state` and `parts` do not change while it is written."""

    state: State
    parts: Sequence[Part]
    plan: Plan
    config: RunConfig
    identity: Identity


@dataclass(frozen=True)
class Written:
    """A checkpoint that stands."""

    where: str
    bytes: int  # of all its files
    warnings: Sequence[str]  # older ones that should have gone, and did not


def save(
    out: Path,
    state: State,
    model: ParallelModel,
    optimizer: torch.optim.Optimizer,
    config: RunConfig,
    identity: Identity,
    world: World,
) -> Path:
    """Write and commit the checkpoint of `state.step` below `out`; all ranks call it, and wait until it stands.

    Raises:
        WenhaiError: the disk refused. Nothing of the step remains, and no older checkpoint was touched.
    """
    tensors = tensors_of(model.parameters, optimizer)
    plan = make_plan(tensors, world)
    write(Place(out), Contents(state, parts_of(plan, tensors), plan, config, identity), world)
    return step_folder(out, state.step)


def write(place: Place, contents: Contents, world: World) -> Written:
    """Write and commit a checkpoint; all ranks call it.

    Raises:
        WenhaiError: disk or store refused. Nothing of the step remains, and no older checkpoint was touched.
    """
    name = step_name(contents.state.step)
    with world.propagate_errors():  # before anything that removes what a failed save leaves
        if world.rank == 0 and place.steps().get(name):
            raise WenhaiError(f"{place.where(name)}: is committed already; a checkpoint is never written twice.")
    try:
        commit = _write(place, name, contents, world)
    except WenhaiError as error:
        if world.rank == 0 and not isinstance(error, LockHeld):  # then what stands there may be the other run's
            with suppress(OSError, WenhaiError):  # as far as that can be done now: the next save or start does the rest
                place.remove(name)
        raise
    finally:
        place.leave(name)
    warnings = _retire(place, name, contents.config.checkpoint) if world.rank == 0 else []
    return Written(place.where(name), sum(file["bytes"] for file in commit["files"].values()), warnings)


def _write(place: Place, name: str, contents: Contents, world: World) -> dict[str, Any]:
    """The commit of a checkpoint that stands; in full on rank 0."""
    with world.propagate_errors(), refusals(place.where(name)):
        if world.rank == 0:
            place.begin(name, is_first=True)
    files: dict[str, Any] = {}
    with world.propagate_errors(), refusals(place.where(name)):
        folder = place.begin(name, is_first=False)
        if contents.parts:  # a rank that holds no slice writes no file
            shard = folder / SHARD_FILE.format(world.rank + 1)
            files[shard.name] = write_shard(shard, contents.parts)
        if world.rank == 0:
            write_json(folder / "state.json", state_json(contents.state))
            write_json(folder / "config.json", saved_json(contents.config, contents.identity))
            write_bytes(folder / TOKENIZER, contents.identity.tokenizer.read_bytes())
            files |= {name: describe(folder / name) for name in ("state.json", "config.json", TOKENIZER)}
        for file in files:
            place.deliver(folder / file)
    all_files: dict[str, Any] = {}
    for of_one_rank in world.gather(files):
        all_files |= of_one_rank
    commit = new_commit(contents.state.step, all_files, dict(contents.plan.tensors))
    with world.propagate_errors(), refusals(place.where(name)):
        if world.rank == 0:
            place.commit(name, commit)
    return commit


def expired_steps(steps: Sequence[int], config: CheckpointConfig) -> list[int]:
    """Of the steps of committed checkpoints those that need not stay.

    >>> expired_steps([100, 200, 300, 400, 500], CheckpointConfig(every_steps=100, keep_last=2, keep_every_steps=200))
    [100, 300]
    """
    kept = config.keep_every_steps
    return [step for step in sorted(steps)[: -config.keep_last] if kept is None or step % kept]


def _retire(place: Place, newest: str, config: CheckpointConfig) -> list[str]:
    """Remove what need not stay, and what an earlier removal or save has left; returns what could not be removed."""
    warnings = []
    try:
        found = place.steps()
        steps = {step_of(name): name for name, committed in found.items() if committed}
        going = [steps[step] for step in expired_steps(list(steps), config)]
        for name in going + [name for name, committed in found.items() if not committed]:
            try:
                place.remove(name)
            except (OSError, WenhaiError) as error:
                warnings.append(f"{place.where(name)} is no longer needed and cannot be removed ({error}). Remove it.")
    except (OSError, WenhaiError) as error:
        warnings.append(f"{newest} stands; older checkpoints were not looked through ({error}).")
    return warnings
