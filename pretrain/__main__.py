"""The command line: parses, and calls the module of the command."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corpus.engine import storage
from corpus.engine.cli import Command, run_package

if TYPE_CHECKING:
    import argparse

    from pretrain.config import RunConfig
    from pretrain.run.command import Planner


def planner() -> Planner:
    """The planner as a run knows it: a run stands below it. Imported when it is asked."""
    from pretrain.run.command import Planner

    def lay_out(config: RunConfig, num_ranks: int, say: Callable[[str], None]) -> RunConfig:
        from pretrain.plan import auto

        return auto.resolve(config, num_ranks, say)

    def dry_run(config: RunConfig, args: argparse.Namespace) -> None:
        from pretrain.plan import dry_run

        dry_run.run(config, args)

    return Planner(lay_out, dry_run)


def _given() -> Mapping[str, Any]:
    return {"planner": planner()}


COMMANDS = {
    "train": Command(
        "pretrain.run.command",
        "train a model, or go on with a run",
        """
python -m pretrain train --config demo --data build/demo --out build/demo-gpt --nproc 2
python -m pretrain train --config demo --data build/demo --out runs/a --set training.num_steps=1000
torchrun --nproc-per-node 8 -m pretrain train --config gpt2-124m --data build/web --out runs/gpt2
python -m pretrain train --dry-run --world-size 2128 --config yuan-245b
""",
        _given,
    ),
    "plan": Command(
        "pretrain.plan.command",
        "which layout, how much memory, how long: on a cluster that need not be there",
        """
python -m pretrain plan --config yuan-245b --cluster selene-a100-80 --gpus 2128
python -m pretrain plan --config yuan-245b --cluster selene-a100-80 --gpus 2128 --explain 1
python -m pretrain plan --config yuan-245b --cluster selene-a100-80 --layout tp=8,pp=38,dp=7,mbs=1,recompute=full
python -m pretrain plan --config llama-3-8b --cluster h100-80 --gpus 64 --tokens 1T --report plan.html
""",
    ),
    "scale": Command(
        "pretrain.scale",
        "measure weak and strong scaling over numbers of ranks",
        """
python -m pretrain scale --config demo --ranks 1 2 4 --out build/scaling
""",
    ),
    "sweep": Command(
        "pretrain.sweep",
        "measure one model over a grid of layouts, beside the planner's predictions",
        """
python -m pretrain sweep --config demo --gpus 2 --grid tp=1,2 pp=1,2 mbs=1,2,4 --out build/sweep
""",
    ),
    "ablate": Command(
        "pretrain.ablation.command",
        "the same small model on several builds of a corpus: did a filter help?",
        """
python -m pretrain ablate --arm filtered=build/a --arm unfiltered=build/b --tokens 600k --out build/ablation
python -m pretrain ablate --arm a=build/a --arm b=build/b --config my.toml --seeds 5 --text held/*.jsonl \\
    --out build/ablation
""",
    ),
    "report": Command(
        "pretrain.monitor.report",
        "a run as one page: loss, speed, memory, events",
        """
python -m pretrain report runs/a
""",
    ),
    "export": Command(
        "pretrain.hf.export",
        "a checkpoint as a Hugging Face folder that transformers loads",
        """
python -m pretrain export --checkpoint runs/a/checkpoints/step-00001000 --out build/a-hf
""",
    ),
    "import": Command(
        "pretrain.hf.load",
        "a Hugging Face folder as the first checkpoint of a new run",
        """
python -m pretrain import --model build/a-hf --out runs/b --data build/demo
""",
    ),
    "finetune": Command(
        "pretrain.finetuning.command",
        "train a checkpoint on examples: instructions, dialogues, tasks",
        """
python -m pretrain finetune --checkpoint runs/a/checkpoints/step-00001000 --examples train.jsonl --out runs/sft
python -m pretrain finetune --checkpoint runs/a/checkpoints/step-00001000 --task tnews --task-data fewclue \\
    --out runs/tnews
""",
        _given,
    ),
    "generate": Command(
        "pretrain.generation.command",
        "continue a prompt, or many",
        """
python -m pretrain generate --checkpoint runs/a/checkpoints/step-00001000 --prompt 春天
python -m pretrain generate --checkpoint runs/a/checkpoints/step-00001000 --prompt 问：什么是春天？ --stop 问： --top-p 0.9
python -m pretrain generate --checkpoint runs/a/checkpoints/step-00001000 --prompts prompts.jsonl --out texts.jsonl
""",
    ),
    "evaluate": Command(
        "pretrain.evaluation.command",
        "bits per character and per byte of a checkpoint, on held-out text or texts of your own",
        """
python -m pretrain evaluate --checkpoint runs/a/checkpoints/step-00001000 --data build/demo
python -m pretrain evaluate --checkpoint runs/a/checkpoints/step-00001000 --text poems.jsonl novel.txt --by author
""",
    ),
    "tasks": Command(
        "pretrain.tasks.command",
        "ask a checkpoint the nine tasks of ZeroCLUE and FewCLUE, or your own, beside chance and published results",
        """
python -m pretrain tasks --checkpoint runs/a/checkpoints/step-00001000 --data fewclue --out results/a
python -m pretrain tasks --checkpoint runs/a/checkpoints/step-00001000 --data fewclue --out results/b \\
    --calibrate diagonal --expand
python -m pretrain tasks --checkpoint runs/a/checkpoints/step-00001000 --data fewclue --task tnews my.toml \\
    --shots 4 --limit 200
""",
    ),
    "trace": Command(
        "pretrain.run.trace",
        "the documents that a training step saw, or the steps that saw a document",
        """
python -m pretrain trace --checkpoint runs/a/checkpoints/step-00001000 --data build/demo --step 1000
python -m pretrain trace --checkpoint runs/a/checkpoints/step-00001000 --data build/demo --url https://example.org/
""",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--dry-run"]:  # of train, the command that it would be
        words.insert(0, "train")
    return run_package("pretrain", "Train GPTs on token shards, and use them.", COMMANDS, words)


def _end(code: int) -> None:
    """Leave at once where torch is loaded: a gloo thread that outlives its group can abort a process that is done.

    Or keep it from ending. Seen once in some hundred runs under load ("terminate called without an active exception",
    after the last line of a finished training). Everything that must last is durable by then.
    """
    storage.clear_scratch()
    sys.stdout.flush()
    sys.stderr.flush()
    if "torch" in sys.modules:
        os._exit(code)
    sys.exit(code)


def _run() -> int:
    """`main`, whose every end comes back here: also a bug, and the silent end of a rank for which another one
    speaks."""
    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    _end(_run())
