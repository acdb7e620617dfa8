"""`python -m pretrain generate`: continue one prompt on the terminal, or many into a file.

Here is the command line; what needs torch is imported once it is called.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.inference.lines import json_object, text_lines

if TYPE_CHECKING:
    from pretrain.generation.generate import Piece
    from pretrain.inference.batcher import EvaluationBatcher
    from tokenizer.model import Tokenizer

MAX_LINE_BYTES = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain generate`."""
    parser.add_argument("--checkpoint", required=True, help="a step-... folder or URL of a run")
    asked = parser.add_argument_group("what is continued")
    which = asked.add_mutually_exclusive_group()
    which.add_argument("--prompt", help="this text (default: nothing, a new document)")
    which.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help='each line of a .txt file, or of a .jsonl file with {"prompt": ...}',
    )
    asked.add_argument(
        "--template",
        nargs="?",
        const="",
        metavar="NAME|FILE.toml",
        help="prompts are questions, asked in a template of `finetune` (without a name: that of the checkpoint's run)",
    )
    asked.add_argument("--num-samples", type=int, default=1, metavar="N", help="texts of each prompt (default 1)")
    asked.add_argument("--max-tokens", type=int, default=200, metavar="N", help="of each text (default 200)")
    asked.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="a text ends before this; may be given several times",
    )
    how = parser.add_argument_group("how a token is chosen")
    how.add_argument("--temperature", type=float, default=0.8, help="0 is greedy (default 0.8)")
    how.add_argument("--top-k", type=int, default=0, metavar="K", help="among the K most probable (default: all)")
    how.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="among the fewest that are P together (default: all)"
    )
    how.add_argument(
        "--repetition-penalty", type=float, default=1.0, metavar="X", help="above 1: less of what was there (default 1)"
    )
    how.add_argument("--seed", type=int, default=0, help="the same seed, the same texts (default 0)")
    given = parser.add_argument_group("what is written, and on what")
    given.add_argument("--json", action="store_true", help="a JSON object for each text")
    given.add_argument(
        "--out", type=Path, metavar="FILE", help="these objects into a .jsonl file, complete or not at all"
    )
    given.add_argument("--batch-size", type=int, default=16, metavar="N", help="texts at a time (default 16)")
    given.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    given.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16"),
        help="of weights, keys and values (default float32, or as wide as the checkpoint's)",
    )


def main(args: argparse.Namespace) -> None:
    """Load the model, and write what it makes of the prompts.

    Raises:
        UsageError: an option, a prompt or its file is wrong.
    """
    from pretrain.chat.conversations import Message
    from pretrain.chat.templates import load_template, render, template_of
    from pretrain.checkpoint import TOKENIZER, load_model, local_folder
    from pretrain.generation.generate import Settings, generate
    from pretrain.generation.kv_cache import KVCachedModel
    from pretrain.generation.sampling import Sampling
    from pretrain.inference.batcher import EvaluationBatcher
    from pretrain.parallel.base.mesh import choose_device, keep_freed_memory
    from tokenizer.model import Tokenizer

    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.repetition_penalty, args.seed)
    stops = tuple(_argument(stop, "--stop") for stop in args.stop)
    settings = Settings(sampling, args.max_tokens, args.num_samples, stops, args.batch_size)
    prompts = [_argument(args.prompt or "", "--prompt")] if args.prompts is None else list(read_prompts(args.prompts))
    _check_out(args.out, args.prompts)

    device = choose_device(args.device)
    if device.type == "cpu":
        keep_freed_memory()
    folder = local_folder(args.checkpoint)
    if args.template is not None:
        template = load_template(args.template) if args.template else template_of(Path(args.checkpoint))
        prompts = [render(template, [Message("user", prompt)]) for prompt in prompts]
    model, config = load_model(folder)
    if args.dtype == "bfloat16":
        model.bfloat16()
    tokenizer = Tokenizer(folder / TOKENIZER)
    batcher = EvaluationBatcher.of(config, tokenizer.eod)
    next_logits = KVCachedModel(model.to(device), batcher, device)
    pieces = generate(next_logits, _encoded(prompts, tokenizer, batcher), settings, batcher, tokenizer.piece_bytes)
    with ExitStack() as stack:
        out: TextIO = sys.stdout
        if args.out is not None:  # a file that is there once all texts are in it
            path = stack.enter_context(durable.commit(args.out))
            out = stack.enter_context(open(path, "x", encoding="utf-8"))
        if len(prompts) == args.num_samples == 1 and not args.json and not args.out:
            _stream(prompts[0], _timed(pieces), out)
        else:
            _list(prompts, _timed(pieces), args.num_samples, args.json or args.out is not None, out)


def _argument(value: str, option: str) -> str:
    """An argument as UTF-8, whatever the locale says; bytes that are none become U+FFFD.

    Raises:
        UsageError: it holds what no bytes can have been.
    """
    try:
        return os.fsencode(value).decode(errors="replace")
    except UnicodeEncodeError as error:
        raise UsageError(f"{option}: {error.reason}. Give it text that UTF-8 can spell") from error


def _check_out(out: Path | None, prompts: Path | None) -> None:
    if out is None:
        return
    if out.suffix != ".jsonl":
        raise UsageError(f"--out {out}: name it .jsonl: it will hold a JSON object in each line")
    if out.is_dir() or (prompts is not None and out.exists() and out.samefile(prompts)):
        raise UsageError(f"--out {out}: is a folder, or the file with the prompts. Choose another name")


def _encoded(prompts: Iterable[str], tokenizer: Tokenizer, batcher: EvaluationBatcher) -> Iterator[list[int]]:
    """The tokens of prompts as their turn comes; of those that are longer than the window it is said."""
    length = batcher.sequence_length
    for number, prompt in enumerate(prompts, 1):
        tokens = tokenizer.encode(prompt)
        if len(tokens) + 1 > length:
            print(
                f"prompt {number}: has {len(tokens):,} tokens, and the model reads {length:,} at a time; it begins "
                "with the "
                f"last {max(1, length // 2):,}",
                file=sys.stderr,
            )
        yield tokens


def _timed(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same, with what they took said after the last."""
    num_texts = num_tokens = 0
    start = time.perf_counter()
    for piece in pieces:
        yield piece
        if piece.end is not None:
            num_texts += 1
            num_tokens += len(piece.of.generated)
    seconds = time.perf_counter() - start
    sys.stdout.flush()
    print(
        f"{num_texts:,} text{'' if num_texts == 1 else 's'}, {num_tokens:,} tokens, {seconds:.1f} s, "
        f"{num_tokens / max(seconds, 1e-9):,.0f} tokens/s",
        file=sys.stderr,
    )


def _stream(prompt: str, pieces: Iterable[Piece], out: TextIO) -> None:
    """A prompt, and its text as it comes."""
    print(prompt, end="", file=out, flush=True)
    for piece in pieces:
        print(piece.text, end="" if piece.end is None else "\n", file=out, flush=True)


def _list(prompts: list[str], pieces: Iterable[Piece], num_samples: int, as_json: bool, out: TextIO) -> None:
    """Texts in the order of prompts, each once it is whole."""
    from pretrain.generation.generate import in_order

    for number, (text, words) in enumerate(in_order(pieces, num_samples)):
        prompt = prompts[text.prompt]
        if as_json:
            record = {
                "prompt": prompt,
                "sample": text.sample,
                "text": words,
                "num_tokens": len(text.generated),
                "end": text.end,
            }
            line = json.dumps(record, ensure_ascii=False)
        else:
            line = f"{'' if number == 0 else chr(10)}--- {text.prompt + 1}.{text.sample + 1}\n{prompt}{words}"
        print(line, file=out, flush=True)


def read_prompts(path: Path) -> Iterator[str]:
    """The prompts of a .jsonl or .txt file, one after the other. Lines without text are none; a JSON prompt may be
    empty.

    Raises:
        UsageError: the file cannot be read or is named otherwise, or a line is wrong; its number is named.
    """
    if path.suffix not in (".jsonl", ".txt"):
        raise UsageError(
            f"{path}: name it .jsonl (an object with `prompt` in each line) or .txt (a prompt in each line)"
        )
    for number, line in text_lines(str(path), MAX_LINE_BYTES):
        where = f"{path}, line {number}"
        prompt = line if path.suffix == ".txt" else json_object(line, where).get("prompt")
        if not isinstance(prompt, str):
            raise UsageError(f'{where}: no object with a text under "prompt". Mend the line or take it out')
        yield prompt
