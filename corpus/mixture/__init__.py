"""Sampling and mixing: how many times each document of the text shards is taken.

config.py says what a recipe's [mixture] may hold, weights.py makes copies of it, and stages.py has the two stages
behind `text`; corpus/report/mixture.py adds up what they did. The tokenizer reads `copies/` and writes each copy as a
sequence of its own.
"""

from corpus.mixture.config import MixtureConfig
from corpus.mixture.stages import MixtureStage, MixtureTotalsStage

__all__ = ["MixtureConfig", "MixtureStage", "MixtureTotalsStage"]
