"""The stages' functions on a list of texts: for small sets, notebooks and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpus.dedup.config import DedupConfig
from corpus.dedup.near.candidates import EXACT, find_edges
from corpus.dedup.near.clusters import SURVIVOR, resolve
from corpus.dedup.near.ranks import read_facts
from corpus.dedup.near.signatures import sign_texts


@dataclass(frozen=True)
class Duplicate:
    """Text number `index` is dropped in favour of text number `survivor`."""

    index: int
    survivor: int
    similarity: float  # estimated Jaccard of the folded n-gram sets; 1.0 when exact
    exact: bool


def near_duplicates(texts: Sequence[str], config: DedupConfig | None = None) -> list[Duplicate]:
    """Return the texts that a corpus build would drop, in order of their index.

    Between equally good texts more bytes decide which stays, then the digest, and the index between equal ones.

    >>> near_duplicates(["學而時習之，不亦說乎？", "学而时习之 不亦说乎", "有朋自远方来，不亦乐乎？"])
    [Duplicate(index=0, survivor=1, similarity=1.0, exact=True)]
    """
    config = config or DedupConfig()
    ids = pa.array([bytes(16)] * len(texts), pa.binary(16))
    column, nothing = pa.array(texts, pa.large_string()), pa.nulls(len(texts), pa.string())
    documents = pa.table({"text": column, "source": nothing.fill_null(""), "date": nothing})
    signed = sign_texts(ids, column, config, read_facts(documents, None, config))
    edges, _ = find_edges(
        signed.band_keys,
        signed.band_rows.astype(np.int64),
        signed.keys.__getitem__,
        signed.signatures.__getitem__,
        config.threshold,
        config.max_leaders,
    )
    return [
        Duplicate(int(fate["document"]), int(fate["survivor"]), float(fate["similarity"]), bool(fate["kind"] == EXACT))
        for fate in resolve(edges)
        if fate["kind"] != SURVIVOR
    ]
