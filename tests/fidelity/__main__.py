"""Our predictions beside what others measured: `python -m tests.fidelity` prints every table of docs/fidelity.md.

Two scalars of one cluster are fitted to eight step times (`tests.fidelity.fit`). All other tables are predictions:
nothing was changed to be nearer to them, and where a table is far away it is printed all the same. Errors are of speed:
predicted over measured, less one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from corpus.engine import durable
from corpus.engine.cli import add_examples
from corpus.engine.errors import UsageError
from pretrain.config import load_config
from pretrain.plan.prediction import Prediction
from pretrain.sweep_report import rank_correlation
from pretrain.workload import parameters
from pretrain.workload.framework_profiles import MEGATRON_2021
from tests.fidelity import fit
from tests.fidelity.errors import Errors, constants
from tests.fidelity.rows import Row, load_published
from tests.fidelity.scores import YUAN_TOKENS, bubble, frontier, memory_errors, score, yuan

EXAMPLES = """
python -m tests.fidelity
python -m tests.fidelity --into docs/fidelity.md docs/fidelity.zh.md
"""
PFLOPS_DAY = 1e15 * 24 * 3600
UNSEEN = (  # tables of speed that need no words of their own
    "narayanan-2021-scaling",
    "mega-scale-2024",
    "mt-nlg-2022",
    "glm-130b-2022",
    "bloom-2022-fp16",
    "bloom-2022-bf16",
    "mosaic-2023-a100",
    "mosaic-2023-h100",
    "llama-3-2024",
    "nanotron-2025",
    "dlperf-2021",
)


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table, numbers to the right."""
    line = "| " + " | ".join(header) + " |"
    rule = "|" + "|".join("---" if place == 0 else "---:" for place in range(len(header))) + "|"
    return [line, rule, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def fit_lines() -> list[str]:
    """What the scalars are fitted to."""
    table = load_published(fit.TABLE)
    found = fit.fit(table.cluster, table.rows)
    rows = [
        (row.name, row.layout, row.recompute, f"{row.seconds:.2f}", f"{row.seconds * (1 + error):.2f}", f"{error:+.1%}")
        for row, error in zip(table.rows, found.errors, strict=True)
    ]
    scalars = ", ".join(f"{name} {value}" for name, value in found.scalars.items())
    return [
        *markdown(("model", "tp x pp x dp", "recompute", "measured s", "fitted s", "error"), rows),
        "",
        f"{scalars}; {Errors(found.errors)}",
    ]


def narayanan_lines() -> list[str]:
    """Table 1 of Narayanan et al. 2021, beside the best constants."""
    scored = score("narayanan-2021")
    measured = np.array([row.tflops for row, _, _ in scored.timed])
    predicted = np.array([prediction.tflops_per_gpu for _, prediction, _ in scored.timed])
    rows = [
        (row.name, row.layout, row.gpus, f"{row.tflops:.0f}", f"{prediction.tflops_per_gpu:.1f}", f"{error:+.1%}")
        for row, prediction, error in scored.timed
    ]
    lines = markdown(("model", "tp x pp x dp", "GPUs", "measured TFLOP/s a GPU", "predicted", "error"), rows)
    lines += [
        "",
        f"{scored.errors}; rank correlation {rank_correlation(measured.tolist(), predicted.tolist()):.2f}",
        "",
    ]
    against = [
        (name, f"{value:.1f}", f"{errors.mean:.1%}", f"{errors.worst:.1%}")
        for name, value, errors in constants(measured)
    ]
    return [*lines, *markdown(("one constant instead", "TFLOP/s a GPU", "mean", "worst"), against)]


def memory_lines() -> list[str]:
    """Activation memory of Korthikanti et al. 2022."""
    found = memory_errors()
    header = (
        "published / ours",
        "none, GiB",
        "sequence parallel, %",
        "selective, %",
        "both, %",
        "full, %",
        "state, GiB: published / blocks / first stage",
    )
    return [
        *markdown(header, found.lines),
        "",
        f"activations: {found.activations}",
        "",
        f"state of blocks alone: {found.blocks}",
        "",
        f"state of the first stage, its embedding too: {found.first_stage}",
    ]


def zero_lines() -> list[str]:
    """ZeRO-3 against tensor and pipeline parallelism at the same numbers of GPUs, or the nearest."""
    sharded, both = score("narayanan-2021-zero-3"), score("narayanan-2021-scaling")
    rows = []
    for own, other in zip(sharded.timed, both.timed, strict=False):
        (row, prediction, _), (against, predicted_against, _) = own, other
        rows.append(
            (
                row.name,
                f"{row.gpus} / {against.gpus}",
                f"{row.tflops:.0f} / {against.tflops:.0f}",
                f"{row.tflops / against.tflops:.2f}",
                f"{prediction.tflops_per_gpu:.0f} / {predicted_against.tflops_per_gpu:.0f}",
                f"{prediction.tflops_per_gpu / predicted_against.tflops_per_gpu:.2f}",
            )
        )
    header = ("ZeRO-3 / tp 8 with pipeline", "GPUs", "measured TFLOP/s a GPU", "ratio", "predicted", "ratio")
    return markdown(header, rows)


def exact_lines() -> list[str]:
    """Figures that follow from formulas alone."""
    config = load_config("yuan-245b")
    numbers = parameters.of_model(config.model)
    days = 8 * round(numbers, -8) * YUAN_TOKENS / PFLOPS_DAY
    apart, fused = yuan(), yuan(MEGATRON_2021)
    rows = [
        ("parameters of Yuan 245B", "245.7 B", f"{numbers / 1e9:.3f} B"),
        ("its compute as 8 N D, N = 245.7 B", "4,095 PFLOP/s-days", f"{days:,.1f} PFLOP/s-days"),
        ("its bubble, 38 stages and 480 micro-batches", "7.7 %", f"{bubble(38, 480):.1%}"),
        ("Yuan 13B's, 2 stages and 6 micro-batches", "16.7 %", f"{bubble(2, 6):.1%}"),
        ("Yuan 245B's share of peak, kernels not fused", "44.8 %", f"{apart.hfu:.1%}"),
        ("the same, kernels fused", "", f"{fused.hfu:.1%}"),
        (
            "its days for 180 B tokens, not fused; fused",
            "about 16",
            f"{apart.days(YUAN_TOKENS):.1f}; {fused.days(YUAN_TOKENS):.1f}",
        ),
    ]
    return markdown(("", "published", "ours"), rows)


def frontier_lines() -> list[str]:
    """Frontier's percentages, with one scalar fitted to them."""
    share, scored = frontier()
    rows = [
        (row.name, row.layout, f"{row.peak_percent:.2f} %", f"{prediction.hfu:.2%}", f"{error:+.1%}")
        for row, prediction, error in scored.timed
    ]
    return [
        *markdown(("model", "tp x pp x dp (recalled)", "published", "fitted", "error"), rows),
        "",
        f"products {share} of the peak, fitted to these three; {scored.errors}",
    ]


def asc22_lines() -> list[str]:
    """Tokens a second, and what fits."""
    scored = score("asc22-2022")
    rows = []
    for row, prediction in zip(scored.table.rows, scored.predictions, strict=True):
        error = row.error(prediction)
        measured = "out of memory" if row.out_of_memory else f"{row.tokens_per_second:,.0f}"
        rows.append(
            (
                row.name,
                f"tp {row.tp}, ZeRO-{row.zero}{', offload' if row.offload else ''}"
                if row.software != "megatron-2020"
                else f"tp {row.tp}",
                f"{row.micro_batch} x {row.batch * row.tp // (row.micro_batch * row.gpus)}",
                measured,
                f"{prediction.tokens_per_second:,.0f}",
                "" if error is None else f"{error:+.1%}",
                f"{prediction.memory_bytes / 2**30:.1f}",
                "yes" if prediction.fits else "no",
            )
        )
    header = ("log", "layout", "micro-batch", "measured tokens/s", "predicted", "error", "predicted GiB", "fits")
    return [*markdown(header, rows), "", str(scored.errors)]


def speed_lines(name: str) -> list[str]:
    """Any table of speeds; memory where it is published."""
    scored = score(name)
    has_memory = any(row.memory_gb or row.out_of_memory for row in scored.table.rows)
    rows = []
    for row, prediction in zip(scored.table.rows, scored.predictions, strict=True):
        error = row.error(prediction)
        memory = ("OOM" if row.out_of_memory else f"{row.memory_gb:.0f}") if row.memory_gb or row.out_of_memory else ""
        cells = [
            row.name,
            row.layout,
            row.micro_batch,
            row.batch,
            *measured_and_predicted(row, prediction),
            "" if error is None else f"{error:+.1%}",
        ]
        if has_memory:
            cells += [memory, f"{prediction.memory_bytes / 1e9:.0f}" + ("" if prediction.fits else ", does not fit")]
        rows.append(cells)
    header = ["model", "tp x pp x dp", "micro-batch", "batch", "measured", "predicted", "error"]
    header += ["GB", "predicted GB"] if has_memory else []
    return [*markdown(header, rows), "", str(scored.errors)]


def measured_and_predicted(row: Row, prediction: Prediction) -> tuple[str, str]:
    """In the unit of the publication."""
    if row.tflops:
        return f"{row.tflops:.1f} TFLOP/s", f"{prediction.tflops_per_gpu:.1f}"
    if row.seconds:
        return f"{row.seconds:.2f} s", f"{prediction.step_seconds:.2f}"
    if row.mfu_percent:
        return f"MFU {row.mfu_percent:.1f} %", f"{prediction.mfu:.1%}"
    if row.device_tokens_per_second:
        return f"{row.device_tokens_per_second:,.0f} tok/s", f"{prediction.tokens_per_second / row.gpus:,.0f}"
    return "", f"{prediction.step_seconds:.2f}"


def summary_lines() -> list[str]:
    """One line a table."""
    rows = []
    for name in ("narayanan-2021", "narayanan-2021-zero-3", *UNSEEN, "asc22-2022"):
        scored = score(name)
        errors = scored.errors
        cells = (f"{errors.mean:.1%}", f"{errors.worst:.1%}", f"{errors.bias:+.1%}")
        rows.append((scored.table.title, scored.table.cluster_name, len(errors.values), *cells))
    return markdown(("table", "cluster", "rows", "mean", "worst", "bias"), rows)


SECTIONS: dict[str, Callable[[], list[str]]] = {
    "summary": summary_lines,
    "korthikanti-2022": fit_lines,
    "narayanan-2021": narayanan_lines,
    "korthikanti-2022-memory": memory_lines,
    "narayanan-2021-zero-3": zero_lines,
    "exact": exact_lines,
    "frontier-2023": frontier_lines,
    "asc22-2022": asc22_lines,
    **{name: partial(speed_lines, name) for name in UNSEEN},
}


def rewrite(page: Path, tables: dict[str, list[str]]) -> None:
    """Put tables into a page, between `<!-- fidelity NAME -->` and `<!-- end -->`.

    Raises:
        UsageError: the page has no place for one of them.
    """
    text = page.read_text(encoding="utf-8")
    for name, lines in tables.items():
        block = re.compile(rf"(<!-- fidelity {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        places = list(block.finditer(text))
        if len(places) != 1:
            raise UsageError(f"{page}: has {len(places)} places for <!-- fidelity {name} --> ... <!-- end -->, not one")
        body = "\n".join(lines)
        text = f"{text[: places[0].end(1)]}\n{body}\n\n{text[places[0].start(2) :]}"
    durable.write_bytes(page, text.encode())


def main(argv: Sequence[str] | None = None) -> int:
    """Print all tables, or put them into pages."""
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=(__doc__ or "").partition("\n")[0])
    add_examples(parser, EXAMPLES)
    parser.add_argument("--only", choices=sorted(SECTIONS), metavar="TABLE", help=f"one of {', '.join(SECTIONS)}")
    parser.add_argument("--into", type=Path, nargs="+", default=[], metavar="PAGE", help="put the tables there as well")
    options = parser.parse_args(argv)
    chosen = [options.only] if options.only else list(SECTIONS)
    tables = {name: SECTIONS[name]() for name in chosen}
    for name, lines in tables.items():
        print(f"## {name}\n", *lines, "", sep="\n")
    for page in options.into:
        rewrite(page, tables)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
