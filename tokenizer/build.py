"""The stages of a tokenizer build: weights of sources, sample, vocabulary, token shards; over a build's text or files."""

from __future__ import annotations

from collections.abc import Sequence

from corpus.engine.stage import Stage
from tokenizer.config import TokenizerConfig
from tokenizer.documents import text_files
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
