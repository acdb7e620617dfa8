"""`python -m pretrain evaluate`: bits per character and per byte of a checkpoint, on held-out text and on texts of
one's own.

Held-out text (`--data`) is one stream of documents, as in training, unless `--per-document` is given; of a folder of
examples the answers are scored, as fine-tuning does. Texts (`--text`) are always scored each alone. Beside them stands,
where `--data` has text to learn from, what n-grams of characters would pay. The model may lie on the ranks of a mesh
(`load_checkpoint`). Torch is imported when it is called.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.columns import truncate_columns
from pretrain.evaluation.held_out import MAX_HELD_OUT_TOKENS, HeldOut, read_held_out
from pretrain.evaluation.kneser_ney import MAX_BASELINE_TOKENS, character_baselines
from pretrain.evaluation.texts import Texts
from pretrain.inference.loading import LoadedCheckpoint, add_model_arguments, in_ranks, load_checkpoint
from pretrain.staging import stage_locally
from tokenizer.shards import open_split

if TYPE_CHECKING:
    from pretrain.evaluation.answers import HeldOutAnswers
    from pretrain.evaluation.bits import Evaluation

TABLE_SOURCES = 20
NAME_COLUMNS = 20  # of a terminal's 80
MOST_NATS = math.log(sys.float_info.max)  # whose exponential is a number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain evaluate`."""
    add_model_arguments(parser)
    what = parser.add_argument_group("what is scored")
    what.add_argument(
        "--data", help="a folder, or URL, with token shards of the same tokenizer, of text or of examples"
    )
    what.add_argument("--split", default="validation", help="which of its documents (default: validation)")
    what.add_argument("--max-tokens", type=int, default=MAX_HELD_OUT_TOKENS, metavar="N", help="of that split")
    what.add_argument(
        "--text", nargs="+", metavar="FILE", help='instead of the split: .jsonl with "text", or .txt, also .gz or .zst'
    )
    what.add_argument(
        "--by", metavar="FIELD", help="of a line of JSONL that names its source (default: the file's name)"
    )
    how = parser.add_argument_group("how it is read")
    how.add_argument(
        "--stride",
        type=int,
        metavar="N",
        help="new tokens of a window: the fewer, the more context has each, and the longer it takes "
        "(default: a whole window, "
        "as in training)",
    )
    how.add_argument(
        "--per-document", action="store_true", help="read each document of --data alone, as those of --text"
    )
    how.add_argument(
        "--without-ends", action="store_true", help="the end of a document costs nothing, as in lm-evaluation-harness"
    )
    how.add_argument("--micro-batch-size", type=int, default=8, metavar="B", help="windows in a forward (default 8)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")


def main(args: argparse.Namespace) -> None:
    """Print what text costs a checkpoint and the character models.

    Raises:
        WenhaiError: of the checkpoint, the data or a text; there is no text to score.
    """
    _check(args)
    in_ranks(args)
    with (
        load_checkpoint(args) as asked,
        stage_locally(asked.config.data, {"": args.data} if args.data else {}) as places,
    ):
        folder = places.get("")
        texts = Texts(args.text, args.by) if args.text else None
        held_out = None if texts or folder is None else _held_out(asked, args, folder)
        with asked.propagate_errors():  # what is wrong there is told before anything is scored
            train = _training_texts(asked, folder) if asked.is_first and folder else []
        result = _score(asked, args, texts, held_out)
        values = _values(result)
        if texts is not None:
            values["num_empty"] = texts.num_empty
        if train:
            scored = held_out.texts if isinstance(held_out, HeldOut) else (text.text for text in texts or ())
            baselines = character_baselines(train, scored, not args.without_ends)
            values |= {f"{name}_bits_per_character": bits for name, bits in baselines.items()}
        if asked.is_first:
            print(_json(values, result) if args.json else "\n".join(_lines(values, result)))


def _held_out(asked: LoadedCheckpoint, args: argparse.Namespace, folder: Path) -> HeldOut | HeldOutAnswers:
    """What `--data` holds of a split: documents, or the answers of examples, which are read in one way alone."""
    from pretrain.evaluation.answers import open_held_out

    held_out = open_held_out(folder, args.split, asked.config, asked.tokenizer, args.max_tokens)
    if not isinstance(held_out, HeldOut) and (args.stride or args.per_document):
        raise UsageError(
            f"{args.data}: holds examples, whose answers are read as in training. Leave out --stride and "
            "--per-document."
        )
    return held_out


def _training_texts(asked: LoadedCheckpoint, folder: Path) -> list[str]:
    """What character models learn from; nothing where there is no training text, or examples."""
    from pretrain.data.examples import read_record

    split = asked.config.data.train_split
    if read_record(folder) is not None or not open_split(folder, split):
        return []
    return read_held_out(folder, split, asked.tokenizer, MAX_BASELINE_TOKENS).texts


def table(result: Evaluation) -> Iterator[str]:
    """The largest sources, the rest, and all, in 80 columns."""
    from pretrain.evaluation.bits import largest

    heads = f"{'bits/char':>9} {'bits/byte':>9} {'loss/token':>10} {'characters':>13} {'tokens':>13}"
    yield f"{'source':{NAME_COLUMNS}} {heads}"
    for name, part in {**largest(result.by_source, TABLE_SOURCES), "all": result}.items():
        figures = f"{part.bits_per_character:9.4f} {part.bits_per_byte:9.4f} {part.loss:10.4f}"
        shown = truncate_columns(name, NAME_COLUMNS)
        shown += " " * (NAME_COLUMNS - cell_len(shown))
        yield f"{shown} {figures} {part.num_characters:13,} {part.num_tokens:13,}"


def _check(args: argparse.Namespace) -> None:
    for option in ("max_tokens", "micro_batch_size", "stride"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise UsageError(f"--{option.replace('_', '-')} {value}: it must be 1 or more")
    if not (args.data or args.text):
        raise UsageError("name what is scored: --data FOLDER with token shards, or --text FILE ...")
    if args.by and not args.text:
        raise UsageError("--by FIELD: names the source in the lines of --text; shards know their sources.")
    if args.without_ends and not (args.text or args.per_document):
        raise UsageError(
            "--without-ends: documents that follow each other are scored with their ends. Add --per-document"
        )


def _score(
    asked: LoadedCheckpoint, args: argparse.Namespace, texts: Texts | None, held_out: HeldOut | HeldOutAnswers | None
) -> Evaluation:
    """What one or the other costs; how fast that was is said on stderr."""
    from pretrain.evaluation.answers import evaluate_answers
    from pretrain.evaluation.bits import encode_batches, evaluate, evaluate_documents

    length = asked.batcher.sequence_length
    stride = args.stride or length
    if stride > length:
        raise UsageError(f"--stride {stride}: the model's windows have {length} tokens. Use that or fewer.")
    where = (args.micro_batch_size, asked.device, asked.world)
    begun = time.perf_counter()
    if held_out is not None and not isinstance(held_out, HeldOut):
        result = evaluate_answers(asked.model, held_out, asked.config, *where)
    elif held_out is not None and not args.per_document:
        result = evaluate(asked.model, held_out, asked.batcher, *where, stride)
    else:
        documents = held_out.documents() if held_out is not None else encode_batches(texts or (), asked.tokenizer)
        result = evaluate_documents(asked.model, documents, asked.batcher, *where, stride, not args.without_ends)
    seconds = time.perf_counter() - begun
    if texts is not None and not result.num_characters:
        raise WenhaiError(f"{', '.join(args.text)}: hold no text; {texts.num_empty:,} of their texts are empty.")
    if asked.is_first:
        speed = f"{result.num_tokens:,} tokens in {seconds:.1f} s ({result.num_tokens / seconds:,.0f} tokens/s)"
        print(f"{speed}, windows of {length} tokens, {stride} of them new", file=sys.stderr)
    return result


def _values(result: Evaluation) -> dict[str, float]:
    return {
        "bits_per_character": result.bits_per_character,
        "bits_per_byte": result.bits_per_byte,
        "loss": result.loss,
        "perplexity": math.inf if result.loss > MOST_NATS else math.exp(result.loss),  # per token
        "num_tokens": result.num_tokens,
        "num_characters": result.num_characters,
        "num_bytes": result.num_bytes,
    }


def _lines(values: Mapping[str, float], result: Evaluation) -> Iterator[str]:
    for name, value in values.items():
        yield f"{name:28} {value:,}" if isinstance(value, int) else f"{name:28} {value:.4f}"
    if len(result.by_source) > 1:
        yield from ("", *table(result))


def _json(values: Mapping[str, float], result: Evaluation) -> str:
    """A figure that no text stands behind is null."""
    from pretrain.evaluation.bits import largest

    sources = {name: _values(part) for name, part in largest(result.by_source, len(result.by_source)).items()}
    whole: dict[str, Any] = {**_finite(values), "sources": {name: _finite(part) for name, part in sources.items()}}
    return json.dumps(whole, ensure_ascii=False, allow_nan=False)


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
