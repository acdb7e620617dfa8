"""Numbers of Hong Kong, Macau and Taiwan: identity cards and permits, telephones.

Identity numbers have a check digit, or brackets and a word before them. Telephones have eight to ten digits, as dates
and ids have: they are told by a country code, an area code in brackets, separators or a word.
"""

from __future__ import annotations

import re

from corpus.personal_data.numbers import CALL_CONTEXT, NOT_PERSONAL, is_other_number
from corpus.personal_data.window import Span, Window

_ID_WORD = re.compile(
    r"(?:身[份分][证證]|[证證]件|居民[证證]|HKID|[Ii][Dd] ?[Cc]ard|[Ii]dentity|BIR|澳[门門]|統一編號)[^\n]{0,16}$"
)
_LETTERED = re.compile(
    r"(?<![0-9A-Za-z_%@./=&#-])(?:"
    r"(?P<hong_kong>[A-Z]{1,2}[0-9]{6}) ?(?:\((?P<bracketed>[0-9A])\)|(?P<check>[0-9A]))|"
    r"(?P<taiwan>[A-Z][A-D1289][0-9]{8}))(?![0-9A-Za-z_%@]|[.:/-][0-9])"
)
_MACAU_ID = re.compile(r"(?<![0-9A-Za-z_%.-])[157][0-9]{6} ?[(/][0-9]\)?(?![0-9A-Za-z_%])")
_TAIWAN_LETTERS = "ABCDEFGHJKLMNPQRSTUVXYWZIO"  # worth 10 to 35

_END = r"(?![0-9A-Za-z_%]|[.:-][0-9])"
_EXTENSION = r"(?: ?(?:#|\(?(?:转|轉|分机|分機|ext\.?)) ?[0-9]{1,6})?\)?"
_ABROAD = re.compile(
    r"(?P<zeros>00)?(?:(?P<code>85[23])\)?[ -]{0,2}(?P<local>[2-9][0-9]{3}[ -]?[0-9]{4})|"
    r"886\)?[ -]{0,2}(?:\(0\)|0)?[ -]?(?P<taiwan>9[0-9]{2}[ -]?[0-9]{3}[ -]?[0-9]{3}|"
    rf"[2-8][0-9]?[ -]?[0-9]{{3,4}}[ -]?[0-9]{{4}})){_END}"
)
_TAIWAN_MOBILE = re.compile(
    rf"(?P<alone>09[0-9]{{8}}{_END})|09[0-9]{{2}}(?:-[0-9]{{3}}-?[0-9]{{3}}| [0-9]{{3}} ?[0-9]{{3}}){_END}"
)
_TAIWAN_LANDLINE = re.compile(
    rf"0[2-8][0-9]{{0,2}}(?P<bracket>\))?(?P<gap>[ -]?)(?P<local>[2-9][0-9]{{2,3}}[ -]?[0-9]{{3,4}}){_END}{_EXTENSION}"
)
_EDGE_BEFORE = re.compile(r"(?:[0-9A-Za-z_%/]|[0-9][-.:]|[A-Za-z_]-|[¥$€£] ?)\Z")


def lettered(view: Window) -> Span | None:
    """An identity number of Hong Kong or Taiwan whose digits begin at the place, behind a letter or two."""
    text, start = view.text, view.at
    while start > 0 and view.at - start < 2 and "A" <= text[start - 1] <= "Z":
        start -= 1
    match = _LETTERED.match(text, start) if start < view.at else None
    if match is None:
        return None
    before = text[max(0, start - 28) : start]
    is_called, other = _ID_WORD.search(before), NOT_PERSONAL.search(before)
    if match["taiwan"]:
        is_one = is_taiwan_id(match["taiwan"])
    else:
        check = match["bracketed"] or (match["check"] if is_called else None)
        is_one = check is not None and is_hong_kong_id(match["hong_kong"] + check)
    if not is_one or (other and not is_called and other[0][:2] not in ("ID", "id")):
        return None
    return Span(view.origin + start, view.origin + match.end(), "id_card")


def is_hong_kong_id(number: str) -> bool:
    """True for one or two letters, six digits and the right check character (0 to 9, A).

    >>> is_hong_kong_id("A1234563"), is_hong_kong_id("AB9876543"), is_hong_kong_id("A1234564")
    (True, True, False)
    """
    values = [36] * (9 - len(number)) + [int(character, 36) for character in number]
    return sum(weight * value for weight, value in zip(range(9, 0, -1), values, strict=True)) % 11 == 0


def is_taiwan_id(number: str) -> bool:
    """True for a letter, nine digits and the right check digit; also of residents, whose second may be a letter.

    >>> is_taiwan_id("A123456789"), is_taiwan_id("A800000014"), is_taiwan_id("AC01234567"), is_taiwan_id("A123456780")
    (True, True, True, False)
    """
    first, second = (10 + _TAIWAN_LETTERS.find(letter) for letter in number[:2])
    digits = [first // 10, first % 10, second % 10 if number[1].isalpha() else int(number[1]), *map(int, number[2:])]
    weights = (1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1)
    return sum(weight * digit for weight, digit in zip(weights, digits, strict=True)) % 10 == 0


def regional(view: Window) -> Span | None:
    """An identity card of Macau, or a telephone of the three regions, that begins at the place."""
    before = view.text[max(0, view.at - 24) : view.at]
    match = _MACAU_ID.match(view.text, view.at)
    if match:
        return Span(view.origin + view.at, view.origin + match.end(), "id_card") if _ID_WORD.search(before) else None
    found = _telephone(view, CALL_CONTEXT.search(before) is not None)
    if found is None or is_other_number(view, found.end):
        return None
    start = view.at
    while start > 0 and view.text[start - 1] in "+(" and view.at - start < 2:
        start -= 1
    if _EDGE_BEFORE.search(view.text[max(0, start - 3) : start]):
        return None
    return Span(view.origin + start, view.origin + found.end, found.kind)


def _telephone(view: Window, is_called: bool) -> Span | None:
    text, at = view.text, view.at
    opening = text[at - 1 : at]
    if match := _ABROAD.match(text, at):
        if not (match["zeros"] or is_called or opening in ("+", "(")):
            return None
        local, code = match["local"] or match["taiwan"], match["code"]
        is_mobile = local[0] not in "23" if code == "852" else local[0] == ("6" if code else "9")
    elif match := _TAIWAN_MOBILE.match(text, at):
        if match["alone"] and not is_called:
            return None
        is_mobile = True
    elif match := _TAIWAN_LANDLINE.match(text, at):
        num_digits = sum(map(str.isdigit, text[at : match.end("local")]))
        if num_digits not in (9, 10) or (opening != "(" if match["bracket"] else not (match["gap"] and is_called)):
            return None
        is_mobile = False
    else:
        return None
    return Span(at, match.end(), "mobile" if is_mobile else "landline")
