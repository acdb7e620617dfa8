"""Other thresholds for a finished build: what they would keep, from the stored statistics, and the recipe that has
them.

    python -m corpus retune OUT --set filter.repetition.top_2_gram_ratio.max=0.18

The filter stores every statistic of every document, dropped ones too, so the verdicts of other ranges follow from
numbers alone, exactly as a new run would give them; no text is read. What changes the numbers themselves (editors, word
lists, models) only a new run can answer, and is refused.
"""

from corpus.retune.command import write_recipe
from corpus.retune.predict import Prediction, predict
from corpus.retune.thresholds import Thresholds, read_thresholds

__all__ = ["Prediction", "Thresholds", "predict", "read_thresholds", "write_recipe"]
