"""Questions to the ledgers of builds, answered by DuckDB; and the columns that a question may name."""

from __future__ import annotations

KEPT = "kept"  # the stage and the kind of documents that none dropped

COLUMNS = {
    "id": "32 hexadecimal digits; the same text under the same key of the same source has the same id in every build",
    "stage": "where it ended: extract, filter, repeated_lines, contamination, substrings, text; or kept",
    "kind": "kept, dropped, error (no document could be made of it) or left_out (a file that no reader reads)",
    "rule": "what it ended by; NULL where it is kept",
    "value": "what the rule measured; of a near duplicate the similarity to the one that stays",
    "threshold": "the limit that the value broke",
    "bound": "which limit that is: min or max",
    "detail": "the error in words; of a duplicate the id of the one that stays; of contamination the item; of the "
    "filter its reason and condition",
    "source": "the name of its source",
    "url": "its address, where it has one",
    "place": "where it was read, as explain takes it: FILE:offset N, FILE!MEMBER:offset N",
    "file": "the file of its place",
    "member": "the member of an archive, else NULL",
    "position": "the number of its place: of a byte, in tables of a row",
    "shard": "the shard that extraction put it in; NULL for what never became a document",
    "row": "its row in that shard: explain takes SHARD:ROW",
    "genre": "prose, verse, code, table, dialogue or list: blocks.genre; NULL for what the filter never read",
    "variety": "zh-Hans, zh-Hant-TW, yue, lzh, ja, ...: script.variety; NULL for what the filter never read",
    "score": "quality.score of its model; a group has a tenth of it: 0.0-0.1, ..., not measured; NULL without a model",
    "bytes": "UTF-8 bytes of its text as it is kept, or as the filter left it; NULL where it never got there",
}
