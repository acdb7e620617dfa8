"""Perplexity under a character n-gram model of one's own: KenLM, where it is installed and a recipe names a file.

    [filter.quality]
    language_model = "zh.binary"                      # or .arpa, over characters with a space between each two
    language_model_perplexity = { max = 2000 }

KenLM scores a few MB of text a second, the slowest of everything a filter could do, so only two samples of a document
count: its beginning and its middle, 1 KB each. White space is left out, as it must be in what the model is trained on.
The shipped bigram table (bigrams.py) needs no file and reads whole documents: `quality.bigram_perplexity`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine import durable
from corpus.engine.errors import UsageError
from corpus.filters.statistic import Batch, Floats, Ints, statistic

SAMPLE_BYTES = 1024


class LanguageModel:
    """A KenLM model; `digest` is the sha256 of its file. A binary file is mapped into memory: use only your own."""

    def __init__(self, path: str) -> None:
        try:
            import kenlm
        except ImportError as error:
            raise UsageError(
                f"filter.quality.language_model: {path} needs the module kenlm: pip install 'wenhai[quality]'"
            ) from error
        if not Path(path).is_file():
            raise UsageError(f"filter.quality.language_model: {path} is no file.")
        options = kenlm.Config()
        options.show_progress = False
        options.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            self._model = kenlm.Model(path, options)
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"filter.quality.language_model: {path} is no model that KenLM can read.") from error
        self.digest = durable.sha256_file(Path(path))

    def measure(self, offsets: Ints, data: npt.NDArray[np.uint8]) -> Floats:
        """float64[documents]: perplexity a character of the samples; 0 where there is no character."""
        samples = [sample(data[start:end]) for start, end in pairwise(offsets.tolist())]
        log10 = [self._model.score(" ".join(one), bos=False, eos=False) / max(len(one), 1) for one in samples]
        return np.array([10**-mean if one else 0.0 for one, mean in zip(samples, log10, strict=True)], np.float64)


def sample(data: npt.NDArray[Any]) -> str:
    """The characters of a document that are scored: the first KB, and a KB from the middle of what follows.

    >>> sample(np.frombuffer("学而 时习之".encode(), np.uint8))
    '学而时习之'
    """
    middle = max(SAMPLE_BYTES, (len(data) - SAMPLE_BYTES) // 2)
    parts = (data[:SAMPLE_BYTES], data[middle : middle + SAMPLE_BYTES])
    return "".join("".join(part.tobytes().decode("utf-8", "ignore").split()) for part in parts)


@lru_cache(maxsize=2)
def load_language_model(path: str) -> LanguageModel:
    """A model, read once a process.

    Raises:
        UsageError: KenLM is not installed, or cannot read the file.
    """
    return LanguageModel(path)


@statistic(unit="perplexity", optional=True)
def language_model_perplexity(batch: Batch) -> Floats:
    """Perplexity a character under the recipe's KenLM model, of a document's first KB and one from its middle.

    >>> from corpus.filters import measure
    >>> measure("quality.language_model_perplexity", ["without a model nothing is measured"])
    array([nan])

    CCNet keeps its head and middle below 1,950 (per SentencePiece piece, so not comparable).
    """
    model = batch.resources.language_model
    if model is None:
        return np.full(len(batch.offsets) - 1, np.nan)
    return model.measure(batch.offsets, batch.data)
