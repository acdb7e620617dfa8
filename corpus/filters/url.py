"""What a user's own lists say of a document's web address.

[filter.url]
hosts = ["hosts.txt"]        # one host a line, with all below it
paths = ["words.txt"]        # words in what follows the host
blocked = { max = 0 }
"""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Floats, statistic


@statistic(unit="0 or 1")
def blocked(batch: Batch) -> Floats:
    """1 where the address is named by the lists of [filter.url] (url_rules.py); 0 without an address or without lists.

    >>> from corpus.filters import measure
    >>> measure("url.blocked", ["学而时习之"])
    array([0.])
    """
    if batch.urls is None:
        return np.zeros(len(batch.offsets) - 1)
    return batch.resources.url.blocked(batch.urls).astype(np.float64)
