"""The public command lines, frozen: their verbs, their options, their exit codes. A change here is a change for
users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contracts.helps import help_of, run_module

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {
    "corpus run": "--address --executor --input --out --quiet --recipe --set --workers",
    "corpus crawl": "--agent --allow-address --concurrency --config --contact --delay --follow --max-pages "
    "--max-pages-per-host --out --port --quiet --resolve --seeds --set --since",
    "corpus plan": "--input --json --out --recipe --set --workers",
    "corpus commoncrawl": "--address --base --concurrency --contact --crawl --dry-run --executor --files --host-suffix "
    "--index --json --language --limit --out --primary --quiet --rate --sample --set --whole --workers",
    "corpus prune": "--json --recipe --set --yes",
    "corpus filter": "--column --dropped --input --out --pii-only --recipe --set --statistics --threads",
    "corpus quality train": "--advertisement --bad --bits --class --column --from-build --good --inverse-penalty "
    "--input --json --labels --max-documents --orders --out --seed",
    "corpus quality label": "--column --endpoint --input --max-characters --max-cost --max-documents --model --out "
    "--parallel --price-in --price-out --rubric --timeout --yes",
    "corpus quality evaluate": "--advertisement --bad --class --column --good --json --model",
    "corpus status": "--json",
    "corpus report": "--json",
    "corpus mixture": "--json",
    "corpus verify": "--json --workers",
    "corpus retune": "--json --set --unset --write",
    "corpus explain": "--json",
    "corpus ledger": "--columns --format --group --limit --output --where",
    "corpus diff": "--format --limit --output",
    "tokenizer run": "--address --executor --json --out --quiet --recipe --set --text --tokenizer --workers",
    "tokenizer check": "--recipe --set",
    "tokenizer report": "--characters --html --json --text",
    "tokenizer compare": "--characters --html --json --text",
    "tokenizer import": "--address --append-eod --eod --executor --json --out --quiet --tokenizer --validation "
    "--workers",
    "tokenizer export": "--documents --out --text",
    "tokenizer inspect": "--json --shards",
    "tokenizer verify": "",
    "tokenizer head": "--tokenizer",
    "tokenizer encode": "--pieces --tokenizer",
    "tokenizer decode": "--pieces --sequence --shard --tokenizer --tokens",
    "tokenizer locate": "--id --shard --split --token --tokenizer --url",
    "pretrain train": "--config --data --device --dry-run --json --master --nnodes --node-rank --nproc --out --set "
    "--tokenizer --world-size",
    "pretrain plan": "--cluster --compare --config --explain --gpus --json --layout --measure --only --refitted "
    "--report --rules "
    "--scaling --schedule --set --software --tokens --top",
    "pretrain plan calibrate": "--name --out",
    "pretrain plan tune": "--cluster --config --seeds --software --trials",
    "pretrain scale": "--config --data --kind --out --ranks --set --steps --tokenizer --warm-up",
    "pretrain sweep": "--cell --cluster --config --gpus --grid --kernels --list --out --set --steps --timeout "
    "--warm-up",
    "pretrain ablate": "--arm --by --config --device --json --limit --max-tokens --nproc --out --points --seeds --set "
    "--steps "
    "--task --tasks --text --tokens",
    "pretrain report": "",
    "pretrain export": "--checkpoint --dtype --format --out --template",
    "pretrain import": "--config --data --model --out --set --tokenizer",
    "pretrain finetune": "--checkpoint --config --epochs --examples --held-out --nproc --out --prefix-lm --prepare "
    "--set "
    "--skip-bad --task --task-data --template --too-long",
    "pretrain generate": "--batch-size --checkpoint --device --dtype --json --max-tokens --num-samples --out --prompt "
    "--prompts --template "
    "--repetition-penalty --seed --stop --temperature --top-k --top-p",
    "pretrain evaluate": "--by --checkpoint --data --device --json --max-tokens --micro-batch-size --nproc "
    "--per-document --set "
    "--split --stride --text --without-ends",
    "pretrain tasks": "--calibrate --checkpoint --compare --data --device --expand --json --limit --method --normalise "
    "--nproc --out "
    "--report --seed --set --shots --split --task",
    "pretrain trace": "--checkpoint --data --id --json --rank --ranks --step --text --url",
}


@pytest.mark.parametrize("verb", OPTIONS)
def test_a_verb_has_its_options(verb: str) -> None:
    offered = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_of(*verb.split())))
    assert set(OPTIONS[verb].split()) <= offered


@pytest.mark.parametrize("package", ["corpus", "tokenizer", "pretrain"])
def test_help_lists_every_verb_and_no_other(package: str) -> None:
    [commands] = re.findall(r"^(?:commands|positional arguments):\n(.*?)(?:^\S|\Z)", help_of(package), re.M | re.S)
    listed = set(re.findall(r"^ {4}([a-z]+)(?: |$)", commands, re.M))
    assert listed == {verb.split()[1] for verb in OPTIONS if verb.startswith(package)}


@pytest.mark.parametrize("package", ["corpus", "tokenizer", "pretrain"])
def test_the_examples_in_the_help_use_options_that_exist(package: str) -> None:
    examples = re.findall(rf"-m {package} ([a-z]+)(.*)$", help_of(package), re.M)
    assert examples
    for verb, rest in examples:
        used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
        assert used <= set(re.findall(r"--[a-z][a-z-]*", help_of(package, verb))), f"{verb}{rest}"


@pytest.mark.parametrize(
    "words",
    [
        ("corpus", "nonsense"),
        ("tokenizer", "nonsense"),
        ("pretrain", "nonsense"),
        ("corpus", "run", "--recipe", "web_zhh", "--input", "x", "--out", "build/none"),
        ("corpus", "filter", "--recipe", "web_zhh"),
        ("tokenizer", "check", "--recipe", "web_zhh"),
        ("pretrain", "train", "--config", "demoo", "--data", "build/none", "--out", "build/none"),
        ("pretrain", "plan", "--config", "demoo"),
    ],
    ids=" ".join,
)
def test_a_mistake_in_usage_exits_with_2_and_no_traceback(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_module(*words) == 2
    printed = capsys.readouterr()
    assert printed.err.strip() and not printed.out
