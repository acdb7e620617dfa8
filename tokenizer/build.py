"""The stages of a tokenizer build: weights of sources, sample, vocabulary, token shards; over a build's text or
files."""

from __future__ import annotations

from collections.abc import Sequence

from corpus.engine.stage import Stage
from tokenizer.config import TokenizerConfig
from tokenizer.documents import text_files
from tokenizer.encode import TokensStage
from tokenizer.sample import SampleStage
from tokenizer.sources import SharesStage, SourcesStage
from tokenizer.train import TokenizerStage

OF_TRAINING = (SourcesStage.name, SharesStage.name, SampleStage.name)  # stages that no given vocabulary has


def stages(
    recipe: TokenizerConfig, text: Sequence[str] = (), *, mixed: bool = False, given: Stage | None = None
) -> list[Stage]:
    """The stages in order, over the build's own text or over the files of `text`.

    The vocabulary is trained on the text as it is, also where a mixture is encoded: so mixtures of one corpus share a
    vocabulary, trying another one repeats only the encoding, and their losses can be compared. Where one is `given`,
    none is trained.
    """
    files = tuple(text_files(text)) if text else ()
    trained = [SourcesStage(recipe, files), SharesStage(recipe), SampleStage(recipe, files), TokenizerStage(recipe)]
    return [*([given] if given else trained), TokensStage(recipe, files, mixed=mixed)]
