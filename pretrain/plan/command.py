"""`python -m pretrain plan`: which layout, how much memory, how long, on a cluster that need not be there.

| asked for | answered by |
|---|---|
| the best layouts | `plan.search.search`, shown by `plan.pages.text` |
| `--layout`, `--explain`, `--compare` | `plan.cost`, shown by `plan.pages.explain` |
| `--json` | `plan.pages.output` |
| `--report` | `plan.pages.report` |
| `--scaling`, `--rules` | `plan.pages.scaling`, `plan.pages.rules` |
| `--measure` | `plan.tuning.tune` |
| `plan calibrate`, `plan tune` | `plan.calibration.calibrate`, `plan.tuning.frontier` |

Here is the command line alone, which needs no torch; `plan.pages.output` puts the answer together.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from corpus.engine.cli import add_examples
from pretrain.config import named_configs
from pretrain.plan.machines.cluster import named_clusters
from pretrain.schedules import SCHEDULES
from pretrain.workload.framework_profiles import ALL

COMMANDS = {  # of plan: module with add_arguments and main, help, examples
    "calibrate": (
        "pretrain.plan.calibration.calibrate",
        "measure this machine, its products, memory and collectives, and write its cluster file",
        """
python -m pretrain plan calibrate --out here.toml
python -m pretrain plan --config demo --cluster here.toml --gpus 2
""",
    ),
    "tune": (
        "pretrain.plan.tuning.frontier",
        "Frontier's tuning experiment, on the planner's model: searchers compared, and what matters",
        """
python -m pretrain plan tune --config frontier-175b --cluster frontier-mi250x --trials 100
""",
    ),
}
PUBLISHED = """
The sections of the configuration that only training needs may be left out: [model] and a batch
(training.global_batch_size, or gbs= in --layout) are enough. A run that others published was made with another program
than this one: name that one with --software, and say what it recomputed.
"""


class _Command(argparse.ArgumentParser):
    """A command of `plan`, whose module is imported when it is called."""

    module_name = ""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        module = import_module(self.module_name)
        module.add_arguments(self)
        self.set_defaults(command=module.main)
        return super().parse_known_args(args, namespace)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain plan`, and of its own commands."""
    parser.description = f"{parser.description}.\n{PUBLISHED}"
    parser.add_argument(
        "--config", help=f"the model and its training: a TOML file, or one of: {', '.join(named_configs())}"
    )
    parser.add_argument(
        "--cluster", help=f"the machine: a TOML file, or one of: {', '.join(named_clusters())} (default: the GPUs here)"
    )
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="devices, of MI250X dies (default: those of --layout, or one node)"
    )
    parser.add_argument("--tokens", metavar="N", help="to train on, as in 300B (default: the configuration's steps)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the configuration")
    parser.add_argument(
        "--software",
        default="ours",
        metavar="NAME",
        help="the program that trains (default: ours): "
        + "; ".join(f"{software.name} ({software.description})" for software in ALL.values()),
    )
    asked = parser.add_argument_group("which layouts")
    asked.add_argument("--top", type=int, default=10, metavar="N", help="show this many (default 10)")
    asked.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="hold the search to tp=8 or recompute=none/full",
    )
    asked.add_argument("--schedule", choices=SCHEDULES, help="hold the search to this one")
    asked.add_argument(
        "--layout",
        metavar="NAME=VALUE,...",
        help="predict this one, as in tp=8,pp=4,dp=2,mbs=1,recompute=full; the rest as configured",
    )
    shown = parser.add_argument_group("what is said of them")
    shown.add_argument(
        "--explain", nargs="?", const="1", metavar="RANK", help="where time and memory go, of the first or of this one"
    )
    shown.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two side by side: ranks or layouts")
    shown.add_argument(
        "--scaling", type=int, nargs="+", metavar="N", help="the best layouts on these numbers of devices"
    )
    shown.add_argument("--rules", action="store_true", help="rules of design for this model on this cluster")
    shown.add_argument("--measure", type=int, metavar="K", help="run the best K here for a few steps, refit, repeat")
    shown.add_argument("--report", type=Path, metavar="FILE", help="write a page with plots")
    shown.add_argument("--json", action="store_true", help="print all of it as a JSON object")
    shown.add_argument(
        "--refitted", type=Path, metavar="FILE", help="of --measure: write the cluster file as it was refitted"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Command)
    for name, (module_name, says, examples) in COMMANDS.items():
        command = commands.add_parser(name, help=says, description=says)
        command.module_name = module_name
        add_examples(command, examples)


def main(args: argparse.Namespace) -> None:
    """Answer on stdout.

    Raises:
        UsageError: in one sentence, what to do about a question that has no answer.
    """
    import_module("pretrain.plan.pages.output").print_plan(args)
