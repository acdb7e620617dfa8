"""Numbers of persons: identity card, bank card, mobile and landline telephone.

No `\\b`: it does not fire between Han and ASCII, which is how English-born patterns leak in Chinese text; a number may
not touch further digits or Latin letters instead. What precedes decides where the form alone cannot: 订单号 makes a number
an order's, 卡号 a card's. Every repeat is bounded.
"""

from __future__ import annotations

import re
from datetime import date

from corpus.personal_data.window import Span, Window

ID_CARD_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
ID_CARD_CHECKS = "10X98765432"
ID_CARD_PROVINCES = frozenset(  # GB/T 2260, first two digits
    "11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71 81 82 83".split()
)

_EDGE_BEFORE = re.compile(
    r"(?:[0-9A-Za-z_%]|[0-9][-.:]|[A-Za-z_][-/]|[¥$€£] ?)\Z"
)  # not `$`, which ignores a line feed
_CALL_WORD = re.compile(r"(?:\A|[^0-9A-Za-z_%])(?:tel|mobile|phone|wechat|weixin|[vw]x|v|qq?)\Z", re.IGNORECASE)
_EDGE_BEHIND = re.compile(r"[0-9A-Za-z_%]|[.:-][0-9]")
NOT_PERSONAL = re.compile(  # what a number of the same form is, when this stands before it
    r"(?:订单|单据|工单|保单|运单|快递|物流|流水|交易|凭证|单号|编号|编码|序列|序号|货号|型号|款号|批号|条形码|条码|料号|机身|房号|期号|文号|"
    r"许可证|备案|统一代码|信用代码|税号|案号|学号|工号|坐标|经度|纬度|价格|金额|总价|市值|代码|版本|端口|哈希|校验|"
    r"訂單|單號|編號|序號|ISBN|ISSN|CN|SKU|UPC|EAN|IMEI|MAC|DOI|PMID|UID|uid|S/N|SN|sn|No\.?|ID|id|Serial|serial|order|Order)"
    r"(?:编号|编码|号码|号|码|为|是|代码|[ :=#.(\[\"'-]){0,4}$"
)
_UNIT = re.compile(
    r" ?(?:元|万元|亿|美元|日元|人民币|人次|字节|公里|千米|千克|吨|股|票|[Bb]ytes?|[KMGT]B|km|ms|[xX×*])"
)
_DIGITS = re.compile(r"[0-9]{1,24}")
_NEXT_RUN = re.compile(r"([ .·-])([0-9]{1,24})")
_MOBILE_PREFIX = re.compile(r"(?:00)?86\)?[ -]{0,2}(?=1[3-9])")
_MOBILE_GROUPS = frozenset({(11,), (3, 4, 4), (3, 8), (7, 4), (4, 3, 4), (4, 4, 3), (3, 3, 5), (5, 6), (1,) * 11})
_AFTER_DIGITS = re.compile(r"[0-9][ ·-]\Z")
_CARD_CONTEXT = re.compile(
    r"(?:卡号|银行卡|账号|帐号|账户|帐户|储蓄卡|信用卡|借记卡|一卡通|工行|农行|建行|中行|招行|交行|银行|邮储|开户|户名|汇款|转账|打款|卡)"
    r"[^\n]{0,16}$"
)
_UNION_PAY = re.compile(r"62")
_OTHER_ISSUERS = re.compile(r"4|5[1-5]|35[2-8]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)|9558|60|63|65|66|68|69|9[04]")
_ID_CONTEXT = re.compile(r"(?:身份证|身份證|居民证|证件)(?:件|号码|號碼|号|號|编号|为|是|[ :(\-]){0,6}$")
_LANDLINE = re.compile(
    r"(?P<country>(?:00)?86\)?[ -]{0,2})?(?P<area>0?(?:10|2[0-57-9]|[3-9][0-9]{2}))(?P<gap>\)?[ -]{0,3})"
    r"(?:[2-8][0-9]{6,7}|[2-8][0-9]{2,3}[ -][0-9]{4})"
    r"(?P<extension>(?:\(?(?:转|轉|分机|ext\.?) ?[0-9]{1,6}|-[0-9]{1,4})(?![0-9]))?"
)
CALL_CONTEXT = re.compile(
    r"(?:电话|電話|座机|固话|热线|熱線|传真|傳真|致[电電]|拨打|撥打|咨询|[諮查洽]詢|联[系络]|聯[絡繫]|手[机機]|行動|电洽|電洽|"
    r"[Tt][Ee][Ll]|[Ff][Aa][Xx]|[Pp]hone|[Ww]hats[Aa]pp)[^\n]{0,12}$"
)


def number(view: Window) -> Span | None:
    """An identity card, bank card, mobile or landline number that begins at the place."""
    before = view.text[max(0, view.at - 3) : view.at]
    groups = _groups(view.text, view.at)
    if _EDGE_BEFORE.search(before):
        is_called = _CALL_WORD.search(view.text[max(0, view.at - 8) : view.at])  # Tel13800138000, 加V13800138000
        return _mobile(view) if is_called else None
    if groups[0][1] - groups[0][0] < 3 and _AFTER_DIGITS.search(before):
        return None
    return _id_card(view, groups) or _mobile(view) or _bank_card(view, groups) or _landline(view)


def _groups(text: str, at: int) -> list[tuple[int, int, str]]:
    """The runs of digits from a place on: start, end, the separator before it; of one number, so few."""
    match = _DIGITS.match(text, at)
    groups: list[tuple[int, int, str]] = []
    while match and len(groups) < 20:
        start, end = match.span(match.lastindex or 0)
        groups.append((start, end, match[1] if match.lastindex else ""))
        match = _NEXT_RUN.match(text, end)
    return groups


def _take(groups: list[tuple[int, int, str]], digits: int, separators: str) -> tuple[int, tuple[int, ...]] | None:
    """Where the first groups hold just so many digits: the end and the groups' lengths. One separator throughout."""
    total = 0
    lengths: list[int] = []
    for start, end, separator in groups:
        if lengths and (separator not in separators or (len(lengths) > 1 and separator != groups[1][2])):
            return None
        total += end - start
        lengths.append(end - start)
        if total >= digits:
            return (end, tuple(lengths)) if total == digits else None
    return None


def _span(view: Window, start: int, end: int, kind: str) -> Span | None:
    """The span, if the number ends there."""
    if _EDGE_BEHIND.match(view.text, end):
        return None
    return Span(view.origin + start, view.origin + end, kind)


def _id_card(view: Window, groups: list[tuple[int, int, str]]) -> Span | None:
    text, at = view.text, view.at
    taken = _take(groups, 18, " -")
    if taken is None:
        taken = _take(groups, 17, " -")
        tail = re.compile(r"[ -]?[Xx]").match(text, taken[0]) if taken else None
        taken = (tail.end(), ()) if tail else None
    if taken:
        digits = re.sub("[ -]", "", text[at : taken[0]])
        return _span(view, at, taken[0], "id_card") if is_id_card(digits) else None
    taken = _take(groups, 15, " -")
    if (
        taken
        and _ID_CONTEXT.search(text[max(0, at - 24) : at])
        and _is_old_id_card(re.sub("[ -]", "", text[at : taken[0]]))
    ):
        return _span(view, at, taken[0], "id_card")
    return None


def is_id_card(number: str) -> bool:
    """True for 18 half-width characters with a province, a possible birth date and the right check character.

    GB 11643-1999, check character by ISO 7064 MOD 11-2.

    >>> is_id_card("11010519491231002X"), is_id_card("110105194912310021")
    (True, False)
    """
    if number[:2] not in ID_CARD_PROVINCES or not 1800 <= int(number[6:10]) < 2100:
        return False
    if not _is_date(int(number[6:10]), int(number[10:12]), int(number[12:14])):
        return False
    total = sum(weight * int(digit) for weight, digit in zip(ID_CARD_WEIGHTS, number[:17], strict=True))
    return ID_CARD_CHECKS[total % 11] == number[17].upper()


def _is_old_id_card(number: str) -> bool:
    """15 digits, in use until 2013: no check digit, a year of two digits."""
    return number[:2] in ID_CARD_PROVINCES and _is_date(1900 + int(number[6:8]), int(number[8:10]), int(number[10:12]))


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def is_other_number(view: Window, end: int) -> bool:
    """True where the words before the place, or the unit behind `end`, make the number an order's, an amount's."""
    return bool(NOT_PERSONAL.search(view.text[max(0, view.at - 24) : view.at]) or _UNIT.match(view.text, end))


def _mobile(view: Window) -> Span | None:
    text, at = view.text, view.at
    prefix = _MOBILE_PREFIX.match(text, at)
    begin = prefix.end() if prefix else at
    if text[begin : begin + 1] != "1":
        return None
    taken = _take(_groups(text, begin), 11, " -.·")
    if taken is None or taken[1] not in _MOBILE_GROUPS or is_other_number(view, taken[0]):
        return None
    if len(taken[1]) > 1 and _AFTER_DIGITS.search(text[max(0, at - 2) : at]):
        return None  # the later groups of a longer number
    digits = re.sub("[ .·-]", "", text[begin : taken[0]])
    if digits[1] not in "3456789":
        return None
    start = at
    if prefix:
        while start > 0 and text[start - 1] in "+(" and at - start < 2:
            start -= 1
    return _span(view, start, taken[0], "mobile")


def _bank_card(view: Window, groups: list[tuple[int, int, str]]) -> Span | None:
    text, at = view.text, view.at
    before = text[max(0, at - 28) : at]
    if NOT_PERSONAL.search(before) or _ID_CONTEXT.search(before):
        return None
    if len(groups) > 1 and groups[0][1] - groups[0][0] not in (4, 6) and groups[1][2] in " -":
        return None
    for length in (19, 18, 17, 16):
        taken = _take(groups, length, " -")
        if taken is None:
            continue
        digits = re.sub("[ -]", "", text[at : taken[0]])
        context = taken[1][:3] == (4, 4, 4) or _CARD_CONTEXT.search(before)
        if not _UNION_PAY.match(digits) and not (context and _OTHER_ISSUERS.match(digits)):
            continue
        if is_luhn(digits) and not _NEXT_RUN.match(text, taken[0]):
            return _span(view, at, taken[0], "bank_card")
    return None


def is_luhn(digits: str) -> bool:
    """True where the last digit is the check digit of ISO/IEC 7812-1, annex B.

    >>> is_luhn("4539578763621486"), is_luhn("4539578763621487")
    (True, False)
    """
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 * (value > 9)
    return total % 10 == 0 and digits.strip(digits[0]) != ""


def _landline(view: Window) -> Span | None:
    text, at = view.text, view.at
    match = _LANDLINE.match(text, at)
    if match is None or is_other_number(view, match.end()):
        return None
    if not (match["country"] or match["area"].startswith("0")):
        return None
    start = at
    if text[start - 1 : start] == "(" and ")" in match[0]:
        start -= 1
    if match["country"]:
        while start > 0 and text[start - 1] in "+(" and at - start < 2:
            start -= 1
    if not match["gap"] and not match["country"] and not CALL_CONTEXT.search(text[max(0, at - 20) : at]):
        return None
    if ")" in match["gap"] and text[start] != "(":
        return None
    return _span(view, start, match.end(), "landline")
