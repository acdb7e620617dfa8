"""A question to the planner answered: as text or JSON on stdout, and as a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.plan import naming
from pretrain.plan.pages import explain, record, report, rules, scaling, text
from pretrain.plan.pages.question import Question, ask
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout
from pretrain.plan.search.search import Plans
from pretrain.plan.tuning import tune
from pretrain.plan.tuning.tune import Tuned

MOST_REASONS = 16  # of layouts that are not there


def answer(args: argparse.Namespace) -> None:
    """Answer on stdout.

    Raises:
        UsageError: in one sentence, what to do about a question that has no answer.
    """
    question = ask(args)
    tuned = _measured(question, args) if args.measure else None
    if args.json:
        print(json.dumps(_json(question, args, tuned), indent=1))
    else:
        print("\n".join(list(_lines(question, args, tuned))))
    if args.report is not None:
        _write_report(question, args)


def _json(question: Question, args: argparse.Namespace, tuned: Tuned | None) -> dict[str, object]:
    """Everything as data; of `--layout` that one alone, without a search for others."""
    plans = None if args.layout else question.plans
    if plans is None:
        found = question.find(args.layout, "--layout")
        answer = record.as_json(question.config, question.tokens, [(None, found)], None)
        answer["by_other_software"] = {name: record.short(each) for name, each in question.by_others(found).items()}
    else:
        answer = record.as_json(question.config, question.tokens, list(enumerate(plans.layouts[: args.top], 1)), plans)
    if plans is not None and isinstance(question.configured, Prediction):
        rank = plans.rank_of(question.configured).place
        answer["configured"] = record.of_layout(question.configured, question.tokens, rank, question.config)
    if tuned is not None:
        answer["measured"] = tune.as_json(tuned)
    if args.scaling:
        answer["scaling"] = scaling.as_json(question.curves(tuple(args.scaling)))
    if args.rules:
        answer["rules"] = rules.as_json(question.rules)
    return answer


def _searched(question: Question) -> tuple[Plans | None, str | None]:
    """The search, or why it found nothing: one layout can be predicted all the same."""
    try:
        return question.plans, None
    except UsageError as error:
        return None, str(error)


def _lines(question: Question, args: argparse.Namespace, tuned: Tuned | None) -> Iterator[str]:
    """The answer for a reader."""
    if args.layout:
        yield from _one(question, question.find(args.layout, "--layout"))
    elif args.compare:
        yield from _compared(question, args.compare)
    elif args.explain:
        found = question.find(args.explain, "--explain")
        yield from text.header(question.config, found, question.tokens, question.name)
        yield ""
        yield from explain.explain(
            found, question.tokens, f"layout {args.explain}" if args.explain.isdecimal() else "layout"
        )
    elif tuned is not None:
        yield from tune.lines(tuned)
    elif not (args.scaling or args.rules):
        yield from _ranked(question, args.top)
    is_alone = not (args.layout or args.compare or args.explain or tuned is not None)
    if args.scaling:
        yield from () if is_alone else ("",)
        yield from scaling.lines(question.curves(tuple(args.scaling)))
    if args.rules:
        yield from () if is_alone and not args.scaling else ("",)
        yield from rules.lines(question.config, question.devices, question.cluster, question.software)


def _ranked(question: Question, top: int) -> Iterator[str]:
    plans, configured = question.plans, question.configured
    best = plans.layouts[0]
    yield from text.header(question.config, best, question.tokens, question.name)
    yield (
        f"{plans.considered:,} legal layouts in {plans.seconds:.1f} s; {len(plans.layouts):,} shapes (tp, pp, mbs) fit and are worth "
        "a row, each in its best layout:"
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
    yield from text.wrapped(text.LEGEND)
    yield ""
    yield from text.split(rows)
    yield ""
    yield from _of_configured(question)
    if plans.rejected:
        yield ""
    yield from text.rejections(plans.rejected, max(MOST_REASONS, top))
    yield ""
    yield from text.wrapped(
        f"--explain 1: where its time and memory go; 1 is {naming.layout_name(best.config, question.devices)}"
    )


def _of_configured(question: Question) -> Iterator[str]:
    """The place of the configuration's own layout, and what makes the difference to the first."""
    configured = question.configured
    if isinstance(configured, str):
        yield from text.wrapped(f"* the configuration's own layout is none of these devices: {configured}", "", "  ")
        return
    yield from _placed(configured, question.plans, "* the configuration's own layout")


def _placed(prediction: Prediction, plans: Plans, who: str) -> Iterator[str]:
    rank = plans.rank_of(prediction)
    if not prediction.fits:
        yield from text.wrapped(f"{who} does not fit: {explain.missing(prediction)}.", "", "  ")
        return
    place = f"{who} is {rank.words}"
    if rank.place == 1:
        yield f"{place}."
        return
    yield from text.wrapped(f"{place}. {explain.difference(rank.best, prediction, ('1', 'It'))}", "", "  ")


def _one(question: Question, prediction: Prediction) -> Iterator[str]:
    """A layout that was named."""
    yield from text.header(question.config, prediction, question.tokens, question.name)
    yield ""
    yield from text.table([("", prediction)], question.tokens)
    yield ""
    yield from explain.explain(prediction, question.tokens, "layout")
    yield ""
    yield from text.others(question.software.name, question.by_others(prediction))
    yield ""
    plans, reason = _searched(question)
    if plans is None:
        yield from text.wrapped(f"Nothing to compare it with: {reason}")
        return
    yield from _placed(prediction, plans, "It")
    if plans.rank_of(prediction).place > 1 or not prediction.fits:
        yield from text.wrapped(f"1 is {naming.layout_name(plans.layouts[0].config, question.devices)}", "", "  ")


def _compared(question: Question, names: list[str]) -> Iterator[str]:
    first, second = (question.find(name, "--compare") for name in names)
    yield from text.header(question.config, first, question.tokens, question.name)
    yield ""
    ranks = all(name.isdecimal() for name in names)
    yield from explain.compare(first, second, (names[0], names[1]) if ranks and names[0] != names[1] else ("A", "B"))


def _measured(question: Question, args: argparse.Namespace) -> Tuned:
    """Runs on this machine, told as they end."""
    tuned = tune.measure_best(question.plans, args.measure, say=lambda line: print(line, file=sys.stderr, flush=True))
    if args.refitted is not None:
        durable.write_bytes(args.refitted, tune.cluster_toml(tuned.cluster).encode())
    return tuned


def _write_report(question: Question, args: argparse.Namespace) -> None:
    report.write(
        args.report,
        question.plans,
        question.tokens,
        name=question.name,
        marked={"configured": question.configured} if isinstance(question.configured, Prediction) else {},
        scaling=question.curves(tuple(args.scaling)) if args.scaling else None,
        rules=question.rules if args.rules else (),
    )
    print(f"{args.report}: written", file=sys.stderr)
