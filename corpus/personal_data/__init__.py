"""Personal data of a batch: found once, counted by kind, masked by typed placeholders.

A kernel says where they may begin (gate.py), their forms are confirmed there (numbers.py, regions.py, addresses.py,
accounts.py); numbers in code stay (code.py).
Kinds exclude each other in the order of `KINDS`: digits in an e-mail address are the address's. What is found does not
depend on what is masked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.personal_data.accounts import accounts, plate
from corpus.personal_data.addresses import email, ipv4, ipv6
from corpus.personal_data.code import is_code
from corpus.personal_data.gate import ACCOUNT, AT, DOTTED, GROUPS, LETTERED, NUMBER, PLATE, find_places
from corpus.personal_data.numbers import number
from corpus.personal_data.regions import lettered, regional
from corpus.personal_data.window import MAX_JOINT_CHARS, Span, Surroundings, Window, is_in_url, is_named

Kind = Literal[
    "email", "id_card", "bank_card", "mobile", "landline", "ipv4", "ipv6", "wechat", "qq", "passport", "plate"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
PLACEHOLDERS: dict[str, str] = {kind: f"<{kind.upper()}>" for kind in KINDS}
_FORMS: dict[int, Callable[[Window], Span | None]] = {
    NUMBER: lambda view: number(view) or regional(view) or ipv4(view),
    LETTERED: lambda view: lettered(view) or number(view),
    DOTTED: ipv4,
    GROUPS: ipv6,
    PLATE: plate,
}
_IN_CODE = frozenset({"id_card", "bank_card", "mobile", "landline"})  # that have the form of a number of a program
_NOTHING = Span(0, 0, "")
_RANK: dict[str, int] = {kind: rank for rank, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class PersonalData:
    """What a batch holds: spans by row, in order and apart from each other, and counts, int64[documents, kinds]."""

    spans: dict[int, list[Span]]
    counts: npt.NDArray[np.int64]


def find_personal_data(
    texts: pa.LargeStringArray, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> PersonalData:
    """All personal data of a batch's texts; `offsets` and `data` are their buffers."""
    places = find_places(offsets, data)
    counts = np.zeros((len(texts), len(KINDS)), np.int64)
    spans: dict[int, list[Span]] = {}
    rows, firsts = np.unique(places.rows, return_index=True)
    bounds = [*firsts.tolist(), len(places.rows)]
    for row, first, last in zip(rows.tolist(), bounds[:-1], bounds[1:], strict=True):
        characters, kinds = places.characters[first:last].tolist(), places.kinds[first:last].tolist()
        found = _find(texts[row].as_py(), characters, kinds)
        if found:
            spans[row] = found
            counts[row] = np.bincount([_RANK[span.kind] for span in found], minlength=len(KINDS))
    return PersonalData(spans, counts)


def _find(text: str, characters: list[int], kinds: list[int]) -> list[Span]:
    spans: list[Span] = []
    surroundings = Surroundings(text)
    for at, kind in zip(characters, kinds, strict=True):
        last = spans[-1] if spans else _NOTHING
        if at >= last.end:
            spans.extend(confirm(surroundings, at, kind, last))
    return _apart(spans)


def confirm(surroundings: Surroundings, at: int, kind: int, last: Span = _NOTHING) -> Iterator[Span]:
    """The personal data at one place of a text; `last` was found before it, and is no part of a longer number."""
    view, text, known = surroundings.of(at), surroundings.text, last.end
    if kind in (NUMBER, DOTTED, GROUPS, LETTERED) and known > 0 and at - known <= MAX_JOINT_CHARS:
        view = view.without(known)
    if kind == ACCOUNT:
        yield from (span for span in accounts(view) if not is_in_url(text, span.start))
        return
    found = email(text, view) if kind == AT else _FORMS[kind](view)
    address = known if last.kind == "email" else 0  # a@b.com/13800138000 is no web address
    if found and found.kind in _IN_CODE and is_code(surroundings, found.start, found.end):
        return
    if found and (kind == AT or is_named(text, found.start) or not is_in_url(text, found.start, address)):
        yield found


def _apart(spans: list[Span]) -> list[Span]:
    """Of overlapping spans the one whose kind comes first in `KINDS`."""
    kept: list[Span] = []
    for span in sorted(spans):
        while kept and kept[-1].end > span.start and _RANK[span.kind] < _RANK[kept[-1].kind]:
            kept.pop()
        if not kept or kept[-1].end <= span.start:
            kept.append(span)
    return kept


def mask_text(text: str, spans: list[Span], kinds: Collection[str]) -> tuple[str, dict[str, int]]:
    """`text` with the spans of some kinds as placeholders, and how many there were of each kind."""
    pieces, counts, done = [], dict[str, int](), 0
    for span in spans:
        if span.kind in kinds:
            pieces += [text[done : span.start], PLACEHOLDERS[span.kind]]
            counts[span.kind] = counts.get(span.kind, 0) + 1
            done = span.end
    return "".join([*pieces, text[done:]]), counts


def mask(text: str, kinds: Collection[str] = KINDS) -> str:
    """`text` with personal data replaced by placeholders.

    >>> mask("联系人王先生，手机13800138000，身份证11010519491231002X，邮箱wang@example.com。订单号2023113800138000。")
    '联系人王先生，手机<MOBILE>，身份证<ID_CARD>，邮箱<EMAIL>。订单号2023113800138000。'
    """
    data = np.frombuffer(text.encode(), np.uint8)
    spans = find_personal_data(pa.array([text], pa.large_string()), np.array([0, len(data)], np.int64), data).spans
    return mask_text(text, spans.get(0, []), kinds)[0]
