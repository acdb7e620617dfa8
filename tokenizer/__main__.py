"""Train a tokenizer, encode documents into token shards, and look into them.

Exit codes: 0 done, 1 failed, 2 usage or recipe, 3 another run holds the folder, 75 stopped, run again to resume.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from corpus.engine import config as engine_config
from corpus.engine import durable, storage
from corpus.engine.cli import Command, add_examples, add_executor_arguments, cluster_address, run_command
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.stage import Stage
from tokenizer.config import MIXTURE_STAGE, TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.shards import SPLITS, ShardError, TokenShard, listed_shards, open_listed, open_split, tokens_folder

MAX_STDIN_BYTES = 64 << 20
EXAMPLES = {
    "run": """
python -m tokenizer run --recipe demo --out build/demo              # the text stage of a finished `corpus run`
python -m tokenizer run --out build/mine --text 'data/*.parquet'    # any Parquet files with a `text` column
""",
    "check": """
python -m tokenizer check --recipe demo --set tokenizer.vocab_size=16000
""",
    "inspect": """
python -m tokenizer inspect build/demo
""",
    "verify": """
python -m tokenizer verify build/demo                               # read every shard, check every checksum
""",
    "head": """
python -m tokenizer head build/demo -n 2
""",
    "encode": """
echo 学而时习之 | python -m tokenizer encode --tokenizer build/demo --pieces
""",
    "decode": """
echo 学而时习之 | python -m tokenizer encode --tokenizer build/demo | python -m tokenizer decode --tokenizer build/demo
""",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return run_command("tokenizer", _parser(), arguments)


def run(options: argparse.Namespace) -> None:
    """Train and encode; what is done already is skipped."""
    from corpus.engine.progress import Progress
    from corpus.engine.run import run_stages

    address = cluster_address(options)
    recipe = read_recipe(options)
    folders = run_stages(
        stages(recipe, options.text, mixed=is_mixed(options)),
        options.out,
        workers=options.workers,
        address=address,
        resources=read_resources(options),
        progress=Progress(quiet=options.quiet),
    )
    (report_file,) = folders["tokenizer"].files("report")
    report = storage.read_json(report_file.url)
    counts = folders["tokens"].counts
    summary = {
        "documents": counts.documents_out,
        "bytes": counts.bytes_out,
        **dict(sorted(counts.extra.items())),
        **{key: report[key] for key in ("vocab_size", "characters_per_token", "byte_fallback_ratio")},
        "tokenizer": folders["tokenizer"].files("model")[0].url,
        "tokens": folders["tokens"].url,
    }
    if report["vocab_size"] < report["vocab_size_asked"]:
        asked = report["vocab_size_asked"]
        _say(f"the text fills a vocabulary of {report['vocab_size']:,}, not the {asked:,} asked for")
    if options.json:
        print(json.dumps(summary, ensure_ascii=False))
    elif not options.quiet:
        for key, value in summary.items():
            _say(f"{key:<22} {value:,}" if isinstance(value, int) else f"{key:<22} {value}")


def stages(recipe: TokenizerConfig, text: Sequence[str] = (), *, mixed: bool = False) -> list[Stage]:
    """The stages in order: sample, vocabulary, token shards; over the build's text, or over Parquet files.

    The vocabulary is trained on the text as it is, also where a mixture is encoded: so mixtures of one corpus share a
    vocabulary, trying another one repeats only the encoding, and their losses can be compared.
    """
    from tokenizer.encode import Encoding, FileEncoding
    from tokenizer.sample import FileSampling, Sampling
    from tokenizer.train import TokenizerTraining

    if not text:
        return [Sampling(recipe), TokenizerTraining(recipe), Encoding(recipe, mixed=mixed)]
    files = tuple(text_files(text))
    return [FileSampling(recipe, files), TokenizerTraining(recipe), FileEncoding(recipe, files)]


def text_files(patterns: Sequence[str]) -> list[storage.File]:
    """The Parquet files of folders, globs, URLs or other builds, sorted; a finished build is read through its manifest.

    Raises:
        UsageError: a pattern matches nothing, or two name the same file.
    """
    files = sorted(_text_files(patterns), key=lambda file: file.url)
    for one, other in pairwise(files):
        if one.url == other.url:
            raise UsageError(f"{one.url}: listed twice among --text. Name each file once.")
    return files


def _text_files(patterns: Sequence[str]) -> Iterator[storage.File]:
    from corpus.engine.run import RUN_NAME, current
    from corpus.engine.stage import MANIFEST_NAME, Folder

    for pattern in patterns:
        if storage.exists(storage.join(pattern, RUN_NAME)):
            yield from current(pattern, "text").files()
        elif storage.exists(storage.join(pattern, MANIFEST_NAME)):
            yield from Folder.open(pattern).files()
        else:
            folder = not pattern.endswith(".parquet")
            yield from storage.list_inputs([storage.join(pattern, "*.parquet") if folder else pattern])


def read_recipe(options: argparse.Namespace) -> TokenizerConfig:
    """The [tokenizer] section of a recipe, by path or by the name of a built-in one; defaults without a recipe."""
    overrides: list[str] = options.set
    for override in overrides:
        if not override.startswith("tokenizer."):
            raise UsageError(f"--set {override}: not in the section this command reads. Write tokenizer.KEY=VALUE.")
    if options.recipe is None:
        values, where = engine_config.apply_overrides({}, overrides), "--set"
    else:
        path = engine_config.find_recipe(options.recipe)
        values, where = engine_config.load_toml(path, overrides), str(path)
    section = values.get("tokenizer", {})
    if not isinstance(section, dict):
        raise UsageError(f"{where}: tokenizer is a value, not a section.")
    return engine_config.parse(TokenizerConfig, section, f"{where} [tokenizer]")


def is_mixed(options: argparse.Namespace) -> bool:
    """Whether the build's mixture is encoded: where the recipe has a [mixture], and the text is the build's own."""
    from corpus.engine.run import RUN_NAME, read_run

    asked = options.recipe is not None and "mixture" in engine_config.load_toml(
        engine_config.find_recipe(options.recipe)
    )
    if options.text:
        if asked:
            _say("the recipe's [mixture] is of the build's own text; every document of --text is taken once")
        return False
    there = storage.exists(storage.join(options.out, RUN_NAME)) and MIXTURE_STAGE in read_run(options.out)["stages"]
    if there and not asked:
        _say(f"{options.out} holds a mixture and this recipe has no [mixture]: every document is taken once")
    return asked


def read_resources(options: argparse.Namespace) -> dict[str, engine_config.Resources]:
    """The [resources.STAGE] sections of a recipe; a stage of the corpus package may stand among them."""
    if options.recipe is None:
        return {}
    path = engine_config.find_recipe(options.recipe)
    section = {"resources": engine_config.load_toml(path).get("resources", {})}
    return engine_config.parse(engine_config.WithResources, section, str(path)).resources


def check(options: argparse.Namespace) -> None:
    """Check a recipe's [tokenizer] section and print it with its defaults filled in."""
    print(json.dumps(read_recipe(options).model_dump(), indent=1))


def inspect(options: argparse.Namespace) -> None:
    """List shards: sequences, tokens, characters per token."""
    rows: list[dict[str, Any]] = []
    for shard in _shards(options.data):
        meta = shard.meta
        ratio = round(meta.num_characters / meta.num_tokens, 4) if meta.num_tokens else None
        rows.append(
            {"prefix": str(shard.prefix), "split": meta.split, "dtype": meta.dtype, "sequences": meta.num_sequences}
            | {"tokens": meta.num_tokens, "characters_per_token": ratio, "vocab_size": meta.vocab_size, "eod": meta.eod}
            | {"max_id": meta.max_id, "tokenizer_sha256": meta.tokenizer_sha256}
        )
    for row in rows:
        if options.json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            print(
                f"{row['prefix']}: {row['sequences']:,} sequences, {row['tokens']:,} tokens ({row['dtype']}), "
                f"{row['characters_per_token']} characters a token"
            )
    if not options.json:
        print(f"{len(rows)} shards, {sum(row['tokens'] for row in rows):,} tokens")


def verify(options: argparse.Namespace) -> None:
    """Read every shard and compare every checksum; files that no manifest lists are named."""
    from tokenizer.encode import verify_docs

    problems = []
    data = _local(options.data)
    opened: list[Callable[[], TokenShard]] = [partial(TokenShard, data)]
    if data.is_dir():
        listed = [shard for split in SPLITS for shard in listed_shards(data, split)]
        opened = [partial(open_listed, prefix, sha256) for prefix, sha256 in listed]
        if not opened:
            raise ShardError(f"{data}: lists no token shards. Give the output folder of `python -m tokenizer run`.")
    for open_shard in opened:
        try:
            shard = open_shard()
            shard.verify()
            verify_docs(shard)
        except WenhaiError as error:
            problems.append(str(error))
    if data.is_dir():
        folder = tokens_folder(data)
        names = set(durable.read_json(folder / "MANIFEST.json")["files"])
        present = {f"data/{path.name}" for path in folder.glob("data/*")}
        problems += [f"{folder / name}: listed by the manifest but missing" for name in sorted(names - present)]
        problems += [f"{folder / name}: not listed by the manifest" for name in sorted(present - names)]
    for problem in problems:
        print(problem)
    _say(f"{len(opened)} shards read, {len(problems)} problems")
    if problems:
        raise ShardError(f"{data}: {len(problems)} problems; each line above says where and what to do.")


def head(options: argparse.Namespace) -> None:
    """Print the first documents of the first shard as text, with their token counts."""
    shard = next(iter(_shards(options.data)), None)
    if shard is None:
        raise ShardError(f"{options.data}: holds no shard.")
    tokenizer = Tokenizer(options.tokenizer or _build_of(Path(options.data)))
    if tokenizer.sha256 != shard.tokenizer_sha256:
        raise ShardError(f"{tokenizer.path}: not the tokenizer of {shard.prefix}. Name its own with --tokenizer.")
    for index in range(min(options.n, shard.num_sequences)):
        ids = shard.sequence(index)
        _say(f"sequence {index}: {len(ids):,} tokens")
        print(tokenizer.decode(ids))


def encode(options: argparse.Namespace) -> None:
    """Print the ids (or pieces) of the text on standard input."""
    tokenizer = Tokenizer(options.tokenizer)
    try:
        ids = tokenizer.encode(_stdin().decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 at byte {error.start}. Convert it first.") from None
    print(" ".join(tokenizer.piece(id) if options.pieces else str(id) for id in ids))


def decode(options: argparse.Namespace) -> None:
    """Print the text of the ids on standard input, byte for byte."""
    tokenizer = Tokenizer(options.tokenizer)
    try:
        ids = [int(word) for word in _stdin().split()]
    except ValueError:
        raise UsageError("standard input is not a list of ids separated by blanks.") from None
    sys.stdout.buffer.write(tokenizer.decode(ids).encode())
    sys.stdout.flush()


def _local(data: str) -> Path:
    if storage.is_remote(data):
        raise UsageError(f"{data}: token shards are memory-mapped, so they must be local. Copy the build here first.")
    return storage.local_path(data)


def _shards(data: str) -> Iterator[TokenShard]:
    path = _local(data)
    if path.is_dir():
        for split in SPLITS:
            yield from open_split(path, split)
    else:
        yield TokenShard(path)


def _build_of(data: Path) -> Path:
    """The output folder that a stage folder or a shard prefix lies in."""
    for folder in (data, *data.resolve().parents):
        if (folder / "run.json").is_file():
            return folder
    raise UsageError(f"{data}: lies in no build. Name the tokenizer with --tokenizer.")


def _stdin() -> bytes:
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise UsageError(f"standard input: more than {MAX_STDIN_BYTES:,} bytes. Encode files with `run --text`.")
    return data


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tokenizer", description=__doc__)
    add_examples(parser, "\n".join(text.strip() for text in EXAMPLES.values()))
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")

    def verb(function: Command) -> argparse.ArgumentParser:
        summary = (function.__doc__ or "").strip()
        added = verbs.add_parser(function.__name__, help=summary, description=summary)
        add_examples(added, EXAMPLES[function.__name__])
        added.set_defaults(command=function)
        return added

    for function in (run, check):
        command = verb(function)
        command.add_argument("--recipe", metavar="R", help="a TOML file, or the name of a built-in recipe")
        command.add_argument(
            "--set", action="append", default=[], metavar="K=V", help="override, e.g. tokenizer.vocab_size=16000"
        )
        if function is run:
            command.add_argument("--out", required=True, help="output folder or URL")
            command.add_argument(
                "--text", nargs="+", default=(), metavar="PATH", help="Parquet files, folders, or another build"
            )
            add_executor_arguments(command)
            command.add_argument("--quiet", action="store_true", help="no progress, no summary")
            command.add_argument("--json", action="store_true", help="the summary as JSON on standard output")
    for function in (inspect, verify, head):
        command = verb(function)
        command.add_argument("data", help="output folder, folder of the tokens stage, or prefix of a shard")
        if function is inspect:
            command.add_argument("--json", action="store_true", help="one JSON object a shard")
        if function is head:
            command.add_argument("-n", type=int, default=3, help="documents (default 3)")
            command.add_argument("--tokenizer", help="model file; default the one of the build")
    for function in (encode, decode):
        command = verb(function)
        command.add_argument("--tokenizer", required=True, help="model file or output folder")
        if function is encode:
            command.add_argument("--pieces", action="store_true", help="pieces instead of ids")
    return parser


if __name__ == "__main__":
    sys.exit(main())
