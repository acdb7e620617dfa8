"""A question to the planner answered: as text or JSON (seconds, bytes, shares of 1) on stdout, and as a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.columns import align_table
from pretrain.config import RunConfig
from pretrain.parallel.base.mesh import layout
from pretrain.plan import naming
from pretrain.plan.pages import explain, report, rules, scaling, text
from pretrain.plan.pages.arguments import Question, parse_question
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout
from pretrain.plan.search.search import Plans
from pretrain.plan.tuning import tune
from pretrain.plan.tuning.tune import Tuned
from pretrain.workload import parameters

MOST_REASONS = 16  # of layouts that are not there
SHORT = ("step_seconds", "tflops_per_gpu", "mfu", "memory_bytes", "fits")  # figures of a prediction
FIGURES = (
    *("micro_batch_size", "micro_batches", "tokens_per_second", "model_tflops_per_gpu", "hfu", "bubble"),
    *("missing_bytes", "host_bytes_per_node"),
)


def print_plan(args: argparse.Namespace) -> None:
    """Answer on stdout.

    Raises:
        UsageError: in one sentence, what to do about a question that has no answer.
    """
    question = parse_question(args)
    tuned = _measured(question, args) if args.measure else None
    if args.json:
        print(json.dumps(_json(question, args, tuned), indent=1))
    else:
        print("\n".join(list(_lines(question, args, tuned))))
    if args.report is not None:
        page = report.render(
            question.plans,
            question.tokens,
            name=question.name,
            marked={"configured": question.configured} if isinstance(question.configured, Prediction) else {},
            scaled=question.curves if args.scaling else None,
            ruled=question.rules if args.rules else (),
        )
        durable.write_bytes(args.report, page.encode())
        print(f"{args.report}: written", file=sys.stderr)


def _json(question: Question, args: argparse.Namespace, tuned: Tuned | None) -> dict[str, object]:
    """Everything as data; of `--layout` that one alone, without a search for others."""
    if args.layout:
        found = question.find(args.layout, "--layout")
        answer = search_as_json(question.config, question.tokens, [(None, found)], None)
        answer["by_other_software"] = {name: short_json(each) for name, each in question.by_others(found).items()}
    else:
        plans = question.plans
        answer = search_as_json(question.config, question.tokens, list(enumerate(plans.layouts[: args.top], 1)), plans)
        if isinstance(question.configured, Prediction):
            rank = plans.rank_of(question.configured).place
            answer["configured"] = layout_as_json(question.configured, question.tokens, rank, question.config)
    if tuned is not None:
        answer["measured"] = tune.as_json(tuned)
    if args.scaling:
        answer["scaling"] = scaling.as_json(question.curves)
    if args.rules:
        answer["rules"] = rules.as_json(question.rules)
    return answer


def _lines(question: Question, args: argparse.Namespace, tuned: Tuned | None) -> Iterator[str]:
    """The answer for a reader: its parts, an empty line between them."""
    parts: list[Iterator[str]] = []
    if args.layout:
        parts.append(_one(question, question.find(args.layout, "--layout")))
    elif args.compare:
        parts.append(_compared(question, args.compare))
    elif args.explain:
        found = question.find(args.explain, "--explain")
        title = f"layout {args.explain}" if args.explain.isdecimal() else "layout"
        parts += [_header(question, found), explain.explain(found, question.tokens, title)]
    elif tuned is not None:
        parts.append(tune.lines(tuned))
    elif not (args.scaling or args.rules):
        parts.append(_ranked(question, args.top))
    if args.scaling:
        parts.append(_scaled(question))
    if args.rules:
        parts.append(_ruled(question))
    for number, part in enumerate(parts):
        yield from [""] * (number > 0)
        yield from part


def _header(question: Question, prediction: Prediction) -> Iterator[str]:
    return text.header(question.config, prediction, question.tokens, question.name)


def _scaled(question: Question) -> Iterator[str]:
    found = question.curves
    where = f"Predicted on {question.cluster.name}, software {question.software.name}."
    yield from text.wrap(f"{where} The layout kept is {found.kept}.")
    yield ""
    rows = list(scaling.table(found))
    yield from align_table([row[:-1] for row in (scaling.COLUMNS, *rows)], left=("scaling",))
    for curve in found.curves:
        yield ""
        yield from text.wrap(scaling.limit(curve))
        for name, devices, *_, layout_or_problem in rows:
            if name == curve.name and (curve.is_searched or " " in layout_or_problem):
                yield from text.wrap(f"{devices} devices: {layout_or_problem}", "  ", "    ")


def _ruled(question: Question) -> Iterator[str]:
    """The figures as a table, and what they say below, which is too long for a column."""
    cells = [rule.cells for rule in question.rules]
    yield from align_table([row[:-1] for row in (rules.COLUMNS, *cells)], left=rules.WORDS)
    yield ""
    for symbol, *_, sentence in cells:
        yield from text.wrap(f"{symbol}: {sentence}" if symbol else sentence, "", "   ")


def _ranked(question: Question, top: int) -> Iterator[str]:
    plans, configured = question.plans, question.configured
    yield from _header(question, plans.best)
    yield (
        f"{plans.considered:,} legal layouts in {plans.seconds:.1f} s; {len(plans.layouts):,} shapes (tp, pp, "
        "mbs) fit and are worth a row, each in its best layout:"
    )
    yield ""
    rows = [(str(place), prediction) for place, prediction in enumerate(plans.layouts[:top], 1)]
    if isinstance(configured, Prediction):
        own = Layout.of(configured.config, question.devices)
        same = [place for place, (_, each) in enumerate(rows) if Layout.of(each.config, question.devices) == own]
        if same:
            rows[same[0]] = (f"*{same[0] + 1}", configured)
        else:
            rows.append(("*", configured))
    yield from text.table(rows, question.tokens)
    yield from text.wrap(text.LEGEND)
    yield ""
    yield from text.split(rows)
    yield ""
    if isinstance(configured, str):
        yield from text.wrap(f"* the configuration's own layout is none of these devices: {configured}", "", "  ")
    else:
        yield from _placed(configured, plans, "* the configuration's own layout")
    if plans.rejected:
        yield ""
    yield from text.rejections(plans.rejected, max(MOST_REASONS, top))
    yield ""
    name = naming.layout_name(plans.best.config, question.devices)
    yield from text.wrap(f"--explain 1: where its time and memory go; 1 is {name}")


def _placed(prediction: Prediction, plans: Plans, who: str) -> Iterator[str]:
    """The place of a layout, and what makes the difference to the first."""
    rank = plans.rank_of(prediction)
    if not prediction.fits:
        yield from text.wrap(f"{who} does not fit: {explain.missing(prediction)}.", "", "  ")
    elif rank.place == 1:
        yield f"{who} is {rank.words}."
    else:
        difference = explain.difference(rank.best, prediction, ("1", "It"))
        yield from text.wrap(f"{who} is {rank.words}. {difference}", "", "  ")


def _one(question: Question, prediction: Prediction) -> Iterator[str]:
    """A layout that was named."""
    yield from _header(question, prediction)
    yield ""
    yield from text.table([("", prediction)], question.tokens)
    yield ""
    yield from explain.explain(prediction, question.tokens, "layout")
    yield ""
    yield from text.others(question.software.name, question.by_others(prediction))
    yield ""
    try:
        plans = question.plans
    except UsageError as error:  # one layout can be predicted all the same
        yield from text.wrap(f"Nothing to compare it with: {error}")
        return
    yield from _placed(prediction, plans, "It")
    if plans.rank_of(prediction).place > 1 or not prediction.fits:
        yield from text.wrap(f"1 is {naming.layout_name(plans.best.config, question.devices)}", "", "  ")


def _compared(question: Question, names: list[str]) -> Iterator[str]:
    first, second = (question.find(name, "--compare") for name in names)
    yield from _header(question, first)
    yield ""
    ranks = all(name.isdecimal() for name in names)
    yield from explain.compare(first, second, (names[0], names[1]) if ranks and names[0] != names[1] else ("A", "B"))


def _measured(question: Question, args: argparse.Namespace) -> Tuned:
    """Runs on this machine, told as they end."""
    tuned = tune.measure_best(question.plans, args.measure)
    if args.refitted is not None:
        durable.write_bytes(args.refitted, tuned.cluster.as_toml().encode())
    return tuned


def search_as_json(
    config: RunConfig, tokens: int, layouts: Sequence[tuple[int | None, Prediction]], plans: Plans | None
) -> dict[str, Any]:
    """The answer to a question: `layouts` with their places among all that fit, and what of the search there is."""
    [(_, first), *_] = layouts
    return {
        "num_parameters": parameters.of_model(config.model),
        "cluster": first.cluster.name,
        "device": first.cluster.device.name,
        "devices": first.devices,
        "devices_per_node": first.cluster.devices_per_node,
        "software": first.software.name,
        "precision": config.training.precision,
        "tokens": tokens,
        "tokens_per_step": first.tokens_per_step,
        "considered": plans.considered if plans else 0,
        "fitting": len(plans.layouts) if plans else 0,
        "search_seconds": plans.seconds if plans else 0.0,
        "layouts": [layout_as_json(prediction, tokens, rank, config) for rank, prediction in layouts],
        "rejected": [asdict(rejected) for rejected in plans.rejected] if plans else [],
    }


def short_json(prediction: Prediction) -> dict[str, Any]:
    """What a layout costs, in a few numbers."""
    return {name: getattr(prediction, name) for name in SHORT}


def layout_as_json(
    prediction: Prediction, tokens: int, rank: int | None = None, base: RunConfig | None = None
) -> dict[str, Any]:
    """One layout, what it costs and where that goes."""
    config, parallel, worst = prediction.config, prediction.config.parallel, prediction.worst
    _, replicas, shards, _ = layout(parallel, prediction.devices)
    return {
        "rank": rank,
        "layout": naming.layout_name(config, prediction.devices, base),
        "tensor_parallel": parallel.tp,
        "pipeline_parallel": parallel.pp,
        "data_parallel": replicas * shards,
        "data_parallel_replicate": replicas,
        "data_parallel_shard": shards,
        "global_batch_size": config.training.global_batch_size,
        "schedule": parallel.schedule if parallel.pp > 1 else None,
        "stages_per_rank": parallel.chunks,
        "layers_per_stage": list(parallel.layers_per_stage) if parallel.layers_per_stage else None,
        "sequence_parallel": parallel.sequence_parallel and parallel.tp > 1,
        **{name: getattr(parallel, name) for name in ("zero", "offload", "recompute", "recompute_every")},
        **{name: getattr(prediction, name) for name in (*SHORT, *FIGURES)},
        "days": prediction.days(tokens),
        "seconds": prediction.seconds.named,
        "communication": {axis: asdict(traffic) for axis, traffic in prediction.communication.items()},
        "memory": dict(worst.rows()),
        "memory_pipeline_rank": worst.pp_rank,
    }
