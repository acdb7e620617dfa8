"""The loss of training runs over their steps, in one picture, and how far they are from each other.

    python -m tools.loss_curves build/one build/eight --svg curves.svg
    python -m tools.loss_curves build/demo/pretrain --held-out --svg learning.svg

A run is a folder with `metrics.jsonl`. Without `--held-out` the curves are of the training loss in nats a token, at the
steps that all runs reported; with it of held-out bits per character, and the character models of `summary.json` are
level lines.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corpus.engine.cli import add_examples
from corpus.engine.errors import UsageError, WenhaiError
from pretrain.evaluation.kneser_ney import ORDERS
from tokenizer.commands.compare import short_names
from tools.plot import Line, write_lines

EXAMPLES = """
python -m tools.loss_curves build/one build/eight --svg curves.svg
python -m tools.loss_curves build/demo/pretrain --held-out --svg learning.svg
"""

Curve = dict[int, float]  # by step


def main(argv: Sequence[str] | None = None) -> None:
    """Draw, and print the last value of each run and the largest difference from the first."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.loss_curves", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_examples(parser, EXAMPLES)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of training runs")
    parser.add_argument("--held-out", action="store_true", help="bits per held-out character instead of training loss")
    parser.add_argument("--svg", type=Path, help="draw the curves there")
    arguments = parser.parse_args(argv)
    kind, value = ("validation", "bits_per_character") if arguments.held_out else ("train", "loss")
    curves = {path: read_curve(path / "metrics.jsonl", kind, value) for path in arguments.runs}
    shared = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    if not shared:
        raise UsageError(f"the runs share no step with a {kind} {value}. Let them report equal steps.")
    compare(list(curves.items()), shared)
    if arguments.svg:
        levels = baselines(arguments.runs[0]) if arguments.held_out else {}
        label = "bits per held-out character" if arguments.held_out else "loss, nats a token"
        write_lines(arguments.svg, lines(curves, shared, levels), "step", label)


def read_curve(path: Path, kind: str, value: str) -> Curve:
    """What a run reported, by step; of a step it did twice the last counts.

    Raises:
        UsageError: there is no such file.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is none. Name the folder of a training run.")
    reports = (json.loads(line) for line in path.read_text().splitlines())
    found = {report["step"]: report[value] for report in reports if report["kind"] == kind}
    return {step: float("nan") if of_step is None else of_step for step, of_step in found.items()}


def compare(curves: Sequence[tuple[Path, Curve]], steps: Sequence[int]) -> None:
    """Print where each ends, and the largest difference from the first."""
    (_, first), *_ = curves
    for path, curve in curves:
        row = f"{path}: {curve[steps[-1]]:.4f} at step {steps[-1]:,}"
        if curve is not first:
            step = max(steps, key=lambda step: _difference(curve[step], first[step]))
            apart = _difference(curve[step], first[step])
            row += f"; at most {apart:.2e} ({apart / abs(first[step]):.1e} relative) from the first, at step {step:,}"
        print(row)


def _difference(a: float, b: float) -> float:
    """Infinite where only one is a number."""
    difference = abs(a - b)
    if math.isnan(difference):
        return 0.0 if math.isnan(a) and math.isnan(b) else math.inf
    return difference


def baselines(run: Path) -> dict[str, float]:
    """Bits per character of the character models that a finished run was compared with, by name."""
    path = run / "summary.json"
    if not path.is_file():
        return {}
    summary = json.loads(path.read_text())
    return {name: summary[key] for name in ORDERS if (key := f"{name}_bits_per_character") in summary}


def lines(curves: dict[Path, Curve], steps: Sequence[int], levels: dict[str, float]) -> list[Line]:
    """A line for each run, all but the first dashed, and a level one for each baseline."""
    x = np.array(steps, dtype=np.float64)
    names = short_names([str(path) for path in curves])
    drawn = [
        Line(name, x, np.array([curve[step] for step in steps]), dashed=name != names[0])
        for name, curve in zip(names, curves.values(), strict=True)
    ]
    ends = np.array([0.0, x[-1]])
    return drawn + [Line(name, ends, np.full(2, bits), dashed=True) for name, bits in levels.items()]


if __name__ == "__main__":
    try:
        main()
    except WenhaiError as error:
        sys.exit(f"loss_curves: {error}")
