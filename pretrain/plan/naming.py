"""Layouts in words: `tp=8,pp=38,dp=7,mbs=1,recompute=full`, as the command line reads and prints them.

| word | stands for |
|---|---|
| a field of `[parallel]` | itself: tp, pp, schedule, stages_per_rank, dp_replicate, dp_shard, zero, recompute, ... |
| dp | all data-parallel ranks, dp_replicate x dp_shard |
| mbs, micro_batch_size | training.micro_batch_size |
| gbs, global_batch_size | training.global_batch_size |
| sp, vpp | sequence_parallel, stages_per_rank |
| tensor_parallel, pipeline_parallel, data_parallel | tp, pp, dp, as `--json` has them |
| stages of several sizes | layers_per_stage=7/8/8/9, or 7/8x2/9 |
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Mapping
from typing import Any, get_args

import pydantic

from corpus.engine.errors import UsageError
from pretrain.batch_size import local_batches
from pretrain.config import ParallelConfig, Recompute, RunConfig
from pretrain.schedules import SCHEDULES

SHORT = {
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "sp": "sequence_parallel",
    "vpp": "stages_per_rank",
    "replicate": "dp_replicate",
    "shard": "dp_shard",
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "data_parallel": "dp",
}
SHOWN = {"micro_batch_size": "mbs", "global_batch_size": "gbs", "sequence_parallel": "sp", "stages_per_rank": "vpp"}
TRAINING = ("micro_batch_size", "global_batch_size")
PLANNING = ("auto", "cluster")  # of ParallelConfig, and of no layout
FIELDS = tuple(name for name in ParallelConfig.model_fields if name not in PLANNING)
WORDS = ("dp", *FIELDS, *TRAINING)
SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}

MOST_STAGES = 10_000  # in words


def parse_words(text: str, option: str) -> dict[str, Any]:
    """`name=value` pairs between commas, as fields' own names and types.

    Raises:
        UsageError: no such name, a value it cannot have, or a name said twice.
    """
    values: dict[str, Any] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        given, equals, value = (part.strip() for part in word.partition("="))
        name = SHORT.get(given, given)
        if not equals:
            raise UsageError(f"{option} {word}: write name=value, for example {option} tp=8,pp=4,dp=2,mbs=1")
        if name not in WORDS:
            known = [*WORDS, *SHORT]
            nearest = difflib.get_close_matches(given, known, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"names are {', '.join(known)}"
            raise UsageError(f"{option} {word}: a layout has no {given!r}; {hint}")
        if name in values:
            raise UsageError(f"{option}: {given} is said twice. Leave one of them out")
        values[name] = _value(name, value, f"{option} {word}")
    if not values:
        raise UsageError(f"{option}: no layout. Write name=value pairs, for example {option} tp=8,pp=4,dp=2,mbs=1")
    return values


def parse_layout(text: str, config: RunConfig, devices: int, option: str = "--layout") -> RunConfig:
    """The configuration in the layout that `text` names; what it leaves out is as configured, or follows from the
    devices.

    Raises:
        UsageError: what `parse_words` refuses; a layout that does not divide the devices, the model or the batch.
    """
    values = parse_words(text, option)
    training = {name: values.pop(name) for name in TRAINING if name in values}
    data_ranks = values.pop("dp", None)
    parallel = _kept(config.parallel, values) | values
    try:
        chosen = ParallelConfig.model_validate(parallel)
        if chosen.pp > 1 and not {"zero"} & {*values, *config.parallel.model_fields_set}:
            parallel["zero"] = 1  # 2 would reduce gradients after each of many micro-batches
        data_ranks = _data_ranks(chosen, data_ranks, devices, f"{option} {text}")
        result = RunConfig.model_validate(
            config.model_dump() | {"parallel": parallel, "training": config.training.model_dump() | training}
        )
    except pydantic.ValidationError as error:
        said = "; ".join(_sentence(item) for item in error.errors(include_url=False))
        raise UsageError(f"{option} {text}: {said}") from None
    local_batches(result.training, result.training.global_batch_size, data_ranks)
    return result


def parse_constraints(text: str, names: Collection[str]) -> dict[str, tuple[Any, ...]]:
    """What a search may choose from, as in `tp=4/8,recompute=full`: the values of each of `names` that is there.

    Raises:
        UsageError: a name that a search cannot be held to, or a value that it cannot have.
    """
    chosen: dict[str, tuple[Any, ...]] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        given, _, values = word.partition("=")
        for value in values.split("/"):
            [(name, parsed)] = parse_words(f"{given}={value}", "--only").items()
            name = "data_parallel" if name == "dp" else name
            if name not in names:
                known = ", ".join(SHOWN.get(name, name).replace("data_parallel", "dp") for name in names)
                raise UsageError(f"--only {word}: a search is held to {known}. The rest: --layout, or --set A.B=VALUE")
            chosen[name] = (*chosen.get(name, ()), parsed)
    if not chosen:
        raise UsageError("--only: nothing to hold to. Write for example --only tp=4/8,recompute=full")
    return chosen


def layout_name(config: RunConfig, devices: int, base: RunConfig | None = None) -> str:
    """What `parse_layout` reads back, with `base` or another configuration that differs in nothing that is left out."""
    parallel, training = config.parallel, config.training
    data_ranks = devices // (parallel.tp * parallel.pp)
    own = local_batches(training, training.global_batch_size, data_ranks)[1]
    words: dict[str, object] = {"tp": parallel.tp, "pp": parallel.pp, "dp": data_ranks, "mbs": own}
    words |= {"zero": parallel.zero, "recompute": parallel.recompute}
    if parallel.pp > 1:
        words["schedule"] = parallel.schedule
    without_effect = {"dp_shard", *(["sequence_parallel"] if parallel.tp == 1 else [])}
    if parallel.chunks == parallel.model_copy(update={"stages_per_rank": None}).chunks:
        without_effect.add("stages_per_rank")
    usual = ParallelConfig()
    for name in FIELDS:
        value = getattr(parallel, name)
        expected = {getattr(usual, name), getattr((base or config).parallel, name)}
        if name not in words and name not in without_effect and value is not None and expected != {value}:
            words[SHOWN.get(name, name)] = value
    if base is not None and base.training.global_batch_size != training.global_batch_size:
        words["gbs"] = training.global_batch_size
    return ",".join(f"{name}={format_value(value)}" for name, value in words.items())


def _kept(parallel: ParallelConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """What stays of the configured layout: not how its stages and data-parallel ranks were cut, nor what belongs to a
    choice that changes."""
    kept = parallel.model_dump(exclude={*PLANNING, "dp_replicate", "dp_shard", "layers_per_stage"})
    if "schedule" in values or values.get("pp", parallel.pp) == 1:
        kept.pop("stages_per_rank")
    if values.get("recompute", "full") != "full":
        kept.pop("recompute_every")
    return kept


def _data_ranks(parallel: ParallelConfig, told: int | None, devices: int, where: str) -> int:
    """How many data-parallel ranks there are; raises `UsageError` where the devices are not their product with the
    rest."""
    unit = parallel.tp * parallel.pp
    inner = parallel.dp_replicate * (parallel.dp_shard or 1)
    ranks = told if told is not None else inner if parallel.dp_shard else devices // unit
    if ranks * unit == devices and ranks % inner == 0 and (parallel.dp_shard is None or ranks == inner):
        return ranks
    if told is not None and (told % inner or (parallel.dp_shard and told != inner)):
        raise UsageError(f"{where}: dp {told} is not dp_replicate x dp_shard; leave dp or one of the two out")
    product = f"tp {parallel.tp} x pp {parallel.pp} x dp {max(1, ranks)}"
    if told is not None:
        advice = f"Take --gpus {unit * told:,}, or leave dp out where tp x pp divides the devices"
    elif devices % unit == 0 and (devices // unit) % inner == 0:
        advice = f"With this tp and pp {devices:,} devices have dp={devices // unit}"
    else:
        step = unit * inner
        below, above = devices // step * step, -(-devices // step) * step
        numbers = " or ".join(f"{number:,}" for number in sorted({below, above} - {0}))
        advice = f"Take --gpus {numbers}, or a tp and pp whose product divides {devices:,}"
    raise UsageError(f"{where}: {product} are {max(1, ranks) * unit:,} devices, not {devices:,}. {advice}")


def _value(name: str, text: str, where: str) -> Any:
    if name in ("sequence_parallel", "offload"):
        if text.lower() not in SWITCHES:
            raise UsageError(f"{where}: {name} is on or off")
        return SWITCHES[text.lower()]
    if name in ("schedule", "recompute"):
        choices = SCHEDULES if name == "schedule" else get_args(Recompute)
        if text not in choices:
            raise UsageError(f"{where}: {name} is one of {', '.join(choices)}")
        return text
    numbers = _repeated(text) if name == "layers_per_stage" else [text]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise UsageError(
            f"{where}: {name} is {'numbers between slashes' if len(numbers) > 1 else 'a number'}, 1 or more"
        )
    return tuple(map(int, numbers)) if name == "layers_per_stage" else int(text)


def format_value(value: object) -> str:
    """A value in words, as `parse_words` reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if not isinstance(value, tuple):
        return str(value)
    runs = [(number, len(list(same))) for number, same in itertools.groupby(value)]
    return "/".join(f"{number}x{times}" if times > 1 else f"{number}" for number, times in runs)


def _repeated(text: str) -> list[str]:
    """
    >>> _repeated("7/8x2/9")
    ['7', '8', '8', '9']
    """
    found = []
    for part in text.split("/"):
        number, _, times = part.partition("x")
        found += [number] * int(times) if times.isdecimal() and 0 < int(times) <= MOST_STAGES else [part]
    return found


def _sentence(item: Any) -> str:
    path = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    return f"{path}: {message}" if path and item["type"] != "value_error" else message
