"""Asks a model the items of tasks: prompts, batches, scores, answers. On any mesh, and again where a run was cut off.

Prompts are scored in fixed batches of similar length. What a batch gave is on the disk before the next begins; a run
that goes on skips whole batches, so that each prompt is always scored beside the same others, and gets the same score
to the last bit on the same mesh.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from corpus.engine.durable import RunLock, digest, sha256_file
from corpus.engine.errors import UsageError, WenhaiError
from pretrain.console import duration
from pretrain.inference.loading import LoadedCheckpoint
from pretrain.inference.scoring import Request, score
from pretrain.tasks.calibration import CALIBRATIONS, Calibration, Normalisation, Word, choose
from pretrain.tasks.definition import Task
from pretrain.tasks.item_file import ItemFile, Scored, Unit
from pretrain.tasks.items import Item, draw_shots, read_items
from pretrain.tasks.prompts import Prompted, Prompter
from pretrain.tasks.results import TaskResult

BATCH_TOKENS = 1 << 17  # for each data-parallel rank: some forwards, and what a kill loses at most
PLAIN_SECONDS, LIVE_SECONDS = 15.0, 0.5  # between two lines of progress, and two states of the live one
CLEAR = "\r\x1b[K"


@dataclass(frozen=True)
class Options:
    """How tasks are asked."""

    prompt: str | None = None  # a name of the task's prompts; None: its default
    shots: int = 0
    seed: int = 0  # of the shots and of a sample
    expand: bool = False  # all words of a class
    split: str | None = None
    limit: int | None = None  # a sample of so many items
    calibration: Calibration = "none"
    normalisation: Normalisation = "sum"

    @property
    def of_scores(self) -> dict[str, Any]:
        """What scores depend on; the rest reads them."""
        return {key: value for key, value in asdict(self).items() if key not in ("calibration", "normalisation")}


class Questions(NamedTuple):
    """A task with its items."""

    task: Task
    prompter: Prompter
    path: Path
    items: list[Item]  # that are asked
    num_in_split: int
    num_unlabelled: int
    train: Path | None  # where the shots are from


def run_tasks(
    asked: LoadedCheckpoint,
    tasks: Sequence[Task],
    data: Path,
    options: Options,
    out: Path | None = None,
    of: Mapping[str, str] | None = None,
    is_shown: bool = False,
) -> dict[str, TaskResult]:
    """The answers to all items, by task; all ranks call it, and get them.

    Args:
        data: folder with a folder for each task.
        out: where scores are kept, so that a run that ends early can go on; None keeps nothing.
        of: what the model is, in the files of `out`.
        is_shown: whether the person at the terminal sees how far it is.

    Raises:
        UsageError: data, definition or `out` do not fit; before anything is scored.
        LockHeld: another evaluation writes to `out`.
    """
    questions = [read_questions(task, data, options, asked) for task in tasks]
    with ExitStack() as stack:
        with asked.propagate_errors():
            if out is not None and asked.is_first:
                stack.enter_context(RunLock(out))
        return {each.task.name: _run(asked, each, options, out, of or {}, is_shown) for each in questions}


def read_questions(task: Task, data: Path, options: Options, asked: LoadedCheckpoint) -> Questions:
    """The items that the options ask for, and the examples before them."""
    found = read_items(task, data, options.split)
    items = found.items if options.limit is None else sample(found.items, options.limit, options.seed)
    shots: tuple[Item, ...] = ()
    train: Path | None = None
    if options.shots:
        examples = read_items(task, data, "train")
        train = examples.path
        if train == found.path:
            raise UsageError(f"{train}: holds both the examples and the items. Name another --split, or --shots 0.")
        shots = draw_shots(examples.items, options.shots, options.seed)
    prompter = Prompter(
        task, asked.tokenizer, asked.batcher.sequence_length, options.prompt, expand=options.expand, shots=shots
    )
    return Questions(task, prompter, found.path, items, len(found.items), found.num_unlabelled, train)


def sample(items: Sequence[Item], num: int, seed: int) -> list[Item]:
    """`num` of the items in their order, drawn by the seed: files are sorted, so that the first say little of the
    rest."""
    if num >= len(items):
        return list(items)
    chosen = random.Random(seed).sample(range(len(items)), num)
    return [items[place] for place in sorted(chosen)]


class Prompts:
    """The prompts of a task, and of each item the content-free ones; those that are the same are scored once."""

    def __init__(self, questions: Questions, calibrated: bool) -> None:
        self.own: dict[Unit, Prompted] = {}
        self.content_free: dict[Unit, Prompted] = {}
        self.stands_for: dict[Unit, Unit] = {}  # of every content-free prompt the one that is scored
        seen: dict[Any, Unit] = {}
        prompt = questions.prompter.task.prompt_named(questions.prompter.prompt)
        self.calibratable = bool(prompt.content_free_fields)
        texts = questions.task.content_free if calibrated and self.calibratable else ()
        for item in questions.items:
            self.own[Unit(item.index)] = questions.prompter.prompted(item)
            for number, text in enumerate(texts):
                unit, prompted = Unit(item.index, number), questions.prompter.prompted(item, text)
                read = [(tuple(each.tokens), each.first_scored) for each in prompted.request.continuations]
                self.stands_for[unit] = seen.setdefault((tuple(prompted.request.context), *read), unit)
                if self.stands_for[unit] == unit:
                    self.content_free[unit] = prompted
        self.num_texts = len(texts)

    def batches(self, num_tokens: int) -> Iterator[dict[Unit, Prompted]]:
        """Prompts of similar length, up to so many tokens together, the longest first."""
        for prompts in (self.own, self.content_free):
            batch: dict[Unit, Prompted] = {}
            room = num_tokens
            for unit in sorted(prompts, key=lambda unit: (-_size(prompts[unit].request), unit)):
                room -= _size(prompts[unit].request)
                if batch and room < 0:
                    yield batch
                    batch, room = {}, num_tokens - _size(prompts[unit].request)
                batch[unit] = prompts[unit]
            if batch:
                yield batch

    def content_free_words(self, index: int, scored: Scored) -> list[list[Word]]:
        """Of an item."""
        return [scored[self.stands_for[Unit(index, number)]] for number in range(self.num_texts)]


def _run(
    asked: LoadedCheckpoint,
    questions: Questions,
    options: Options,
    out: Path | None,
    of: Mapping[str, str],
    is_shown: bool,
) -> TaskResult:
    prompts = Prompts(questions, calibrated=options.calibration != "none")
    scored: Scored = {}
    file: ItemFile | None = None
    with asked.propagate_errors():
        if out is not None and asked.is_first:
            scores_of = {
                "definition": digest(questions.task.model_dump(mode="json")),
                "data": sha256_file(questions.path),
                "examples": None if questions.train is None else sha256_file(questions.train),
            }
            file = ItemFile(out, questions.task.name, {**of, **scores_of, **options.of_scores})
            scored = file.scored
    done = asked.from_first(set(scored))
    batches = list(prompts.batches(BATCH_TOKENS * (1 if asked.world is None else asked.world.dp_size)))
    left = [batch for batch in batches if not batch.keys() <= done]
    num = sum(map(len, batches))
    with progress(questions.task.name, num, num - sum(map(len, left)), is_shown and asked.is_first) as advance:
        for batch in left:
            found = _score(asked, batch, advance)
            with asked.propagate_errors():
                if file is None:
                    scored.update(found)
                else:
                    file.append(found)
    result: TaskResult | None = None
    with asked.propagate_errors():
        if asked.is_first:
            if file is not None:
                file.finish()
            result = _answers(questions, prompts, scored, options)
    result = asked.from_first(result)
    assert result is not None
    return result


@contextmanager
def progress(name: str, num: int, num_done: int, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
    """What the person at the terminal sees while prompts are scored, on stderr: one live line, plain lines elsewhere.

    Args:
        num: prompts of the task.
        num_done: of them, scored earlier.

    Yields:
        What is told of each so many more that are scored.
    """
    start = last = time.monotonic()
    done, is_live = num_done, sys.stderr.isatty()

    def say(text: str, end: str) -> None:
        if is_shown:
            print(f"{CLEAR if is_live else ''}{name:<10} {text}", file=sys.stderr, end=end, flush=True)

    def advance(count: int) -> None:
        nonlocal done, last
        done, now = done + count, time.monotonic()
        if now - last >= (LIVE_SECONDS if is_live else PLAIN_SECONDS):
            last = now
            rate = (done - num_done) / max(1e-9, now - start)
            left = duration((num - done) / rate if rate else 0.0)
            say(f"{done:,}/{num:,} prompts  {rate:,.1f}/s  {left} left", "" if is_live else "\n")

    yield advance
    seconds = time.monotonic() - start
    rate = (done - num_done) / max(1e-9, seconds)
    took = f" in {duration(seconds)}: {rate:,.1f}/s" if done > num_done else ""
    say(f"{num:,} prompts{took}{f' ({num_done:,} scored earlier)' if num_done else ''}", "\n")


def _score(asked: LoadedCheckpoint, batch: Mapping[Unit, Prompted], advance: Callable[[int], None]) -> Scored:
    units, prompts = list(batch), list(batch.values())
    requests = [prompted.request for prompted in prompts]
    found: Scored = {}
    for number, scores in score(asked.model, requests, asked.batcher, asked.device, asked.world):
        if not all(math.isfinite(each.log_likelihood) for each in scores):
            raise WenhaiError(
                f"item {units[number].item}: its log-likelihood is not a finite number. The model diverged, or its "
                "numbers need another --set training.precision."
            )
        of_words = zip(prompts[number].choice_of, scores, prompts[number].num_characters, strict=True)
        found[units[number]] = [
            Word(choice, each.log_likelihood, each.num_tokens, characters) for choice, each, characters in of_words
        ]
        advance(1)
    return found


def _answers(questions: Questions, prompts: Prompts, scored: Scored, options: Options) -> TaskResult:
    task, items = questions.task, questions.items
    calibrations = CALIBRATIONS if prompts.num_texts else CALIBRATIONS[:1]
    predicted: dict[Calibration, list[int]] = {each: [] for each in calibrations}
    for item in items:
        own, content_free = scored[Unit(item.index)], prompts.content_free_words(item.index, scored)
        for each, answers in predicted.items():
            answers.append(choose(own, content_free, each, options.normalisation))
    num_shots = len(questions.prompter.shots)
    words = task.prompt_named(options.prompt).words or task.words
    return TaskResult(
        name=task.name,
        prompt=options.prompt or task.prompt,
        split=options.split or task.split,
        task=digest(task.model_dump(mode="json")),
        data=sha256_file(questions.path),
        labels=task.labels,
        words=tuple(words[label][0] for label in task.labels if label in words),
        calibration=options.calibration if prompts.num_texts else "none",
        calibratable=prompts.calibratable,
        num_in_split=questions.num_in_split,
        num_unlabelled=questions.num_unlabelled,
        num_cut=sum(prompted.num_cut > 0 for prompted in prompts.own.values()),
        num_short_of_shots=sum(prompted.num_shots < num_shots for prompted in prompts.own.values()),
        index=tuple(item.index for item in items),
        gold=tuple(item.choice for item in items),
        predicted={each: tuple(answers) for each, answers in predicted.items()},
    )


def _size(request: Request) -> int:
    return len(request.context) + sum(len(each.tokens) for each in request.continuations)
