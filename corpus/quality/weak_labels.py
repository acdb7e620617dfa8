"""Labels for the quality model from one's own build, by heuristics: nobody has read these documents.

    high             kept, and well inside: 300 characters or more, most of them in lines that end like sentences, no
                     word of a block list, hardly a label
    low              dropped for its shape: repetition, lines, characters, scrambled order
    advertisement    dropped for words of a block list

A model of such labels generalises the rules (to advertisements with words that no list has, for example) and inherits
their mistakes. It does not learn what a person would call good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpus.document import read_batches
from corpus.engine.errors import UsageError
from corpus.engine.stage import shard_name
from corpus.engine.storage import fetch
from corpus.filters.quality.model import ADVERTISEMENT
from corpus.report.ledger import read_texts
from corpus.report.summary import folders

HIGH_WITHIN: dict[str, tuple[float, float]] = {
    "length.num_chars": (300, float("inf")),
    "lines.terminal_char_ratio": (0.6, 1.0),
    "lines.label_char_ratio": (0.0, 0.05),
    "lines.duplicate_line_char_ratio": (0.0, 0.1),
    "blocklist.blocklist_ratio": (0.0, 0.0),
}
LOW_RULES = r"^(repetition|lines|characters)\.|^quality\.bigram_association$"
ADVERTISEMENT_RULES = r"^blocklist\."

Ordinals = list[tuple[str, int]]


def documents_of_build(out: str) -> dict[str, Iterator[str]]:
    """The texts of a build by class, as they were extracted; a class may be empty.

    Raises:
        UsageError: the build has no complete filter stage.
    """
    stages = folders(out)
    if "filter" not in stages:
        raise UsageError(f"{out}: its filter stage is not complete. Finish the run first.")
    ordinals: dict[str, Ordinals] = {"high": [], "low": [], ADVERTISEMENT: []}
    for file in stages["filter"].files("statistics"):
        for table in read_batches(fetch(file.url), ["row", "kept", "rule", *HIGH_WITHIN]):
            for name, chosen in _masks(table).items():
                rows = table["row"].filter(chosen).to_pylist()
                ordinals[name] += [(shard_name(file), row) for row in rows]

    def texts(name: str) -> Iterator[str]:
        return (text for _, _, text in read_texts(out, ordinals[name]))

    return {name: texts(name) for name in ordinals}


def _masks(table: pa.Table) -> Mapping[str, Any]:
    high = table["kept"]
    for key, (low, top) in HIGH_WITHIN.items():
        high = pc.and_(high, pc.and_(pc.greater_equal(table[key], low), pc.less_equal(table[key], top)))
    rule = pc.fill_null(table["rule"], "")
    return {
        "high": high,
        "low": pc.match_substring_regex(rule, LOW_RULES),
        ADVERTISEMENT: pc.match_substring_regex(rule, ADVERTISEMENT_RULES),
    }
