"""The stages of a tokenizer build: weights of sources, sample, vocabulary, token shards; over a build's text or files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from corpus.engine import storage
from corpus.engine.errors import UsageError
from corpus.engine.run import RUN_NAME, current
from corpus.engine.stage import MANIFEST_NAME, Folder, Stage
from tokenizer.config import TokenizerConfig
from tokenizer.encode import Encoding, FileEncoding
from tokenizer.sample import FileSampling, Sampling
from tokenizer.sources import FileWeighing, Sharing, Weighing
from tokenizer.train import TokenizerTraining

OF_TRAINING = (Weighing.name, Sharing.name, Sampling.name)  # stages that no given vocabulary has


def stages(
    recipe: TokenizerConfig, text: Sequence[str] = (), *, mixed: bool = False, given: Stage | None = None
) -> list[Stage]:
    """The stages in order, over the build's own text or over the files of `text`.

    The vocabulary is trained on the text as it is, also where a mixture is encoded: so mixtures of one corpus share a
    vocabulary, trying another one repeats only the encoding, and their losses can be compared. Where one is `given`, none
    is trained.
    """
    if not text:
        vocabulary = (
            [given] if given else [Weighing(recipe), Sharing(recipe), Sampling(recipe), TokenizerTraining(recipe)]
        )
        return [*vocabulary, Encoding(recipe, mixed=mixed)]
    files = tuple(text_files(text))
    sampled = [FileWeighing(recipe, files), Sharing(recipe), FileSampling(recipe, files), TokenizerTraining(recipe)]
    return [*([given] if given else sampled), FileEncoding(recipe, files)]


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
    for pattern in patterns:
        if storage.exists(storage.join(pattern, RUN_NAME)):
            yield from current(pattern, "text").files()
        elif storage.exists(storage.join(pattern, MANIFEST_NAME)):
            yield from Folder.open(pattern).files()
        else:
            folder = not pattern.endswith(".parquet")
            yield from storage.list_inputs([storage.join(pattern, "*.parquet") if folder else pattern])
