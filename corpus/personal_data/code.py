"""Numbers in code: `np.array([13800138000])` and `x = 13800138000;` are nobody's telephone.

A number stays where code is written around it, unless a word on its line says whose it is: `{"phone": "13800138000"}`
is masked. Beside Han characters only what no sentence holds is code: a list or a dotted name, or what stands between
backticks.
"""

from __future__ import annotations

import re
from bisect import bisect

from corpus.personal_data.window import Surroundings

MAX_LINE_CHARS = 240  # looked at on each side of a number
_TELLING = re.compile(
    r"tel|phone|mobile|contact|sms|wechat|weixin|whats|fax|qq|\b[vwq]x? ?[:=]|identity|citizen|card|sfz|id_?n[ou]|"
    r"[电電][话話]|手[机機]|[联聯][系络絡繫]|身[份分]|[证證]件|[号號][码碼]|卡[号號]|[账帳][号號户戶]|银行|致[电電]|微信|[咨諮]",
    re.IGNORECASE,
)
_HAN = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")
_COMMENT = re.compile(r"//|/\*|#|<!--")
_LIST = "0123456789 \t\n,-'\"[](){}"  # what stands between a number and the code that leads to it
_BEFORE = re.compile(
    r"(?:(?P<value>[\w\])\"'] ?[-+*/%&|^<>!=:~]?=|[\"'] ?:|\b(?:return|case|yield))|"
    r"(?P<name>\w[._]\w+|\w\])|(?P<call>\b[a-z_]\w*))\Z"
)
_BEHIND = re.compile(r"[LlUun]{0,3}[\"'`]?[ \t]*(?:[])};,>/*%<=&|+#]|\Z)")


def is_code(surroundings: Surroundings, start: int, end: int) -> bool:
    """True where the number from `start` to `end` is written in code, and by no word said to be a person's.

    >>> is_code(Surroundings("x = 13800138000;"), 4, 15), is_code(Surroundings("电话=13800138000"), 3, 14)
    (True, False)
    """
    text = surroundings.text
    lead = text[max(0, start - MAX_LINE_CHARS) : start]
    line, behind = lead.rpartition("\n")[2], text[end : end + MAX_LINE_CHARS].partition("\n")[0]
    code = lead.rstrip(_LIST)
    brackets = lead[len(code) :]
    if "\n" in brackets and not any(bracket in brackets for bracket in "[({"):
        code, brackets = line, ""
    first = code.rpartition("\n")[2]
    if _TELLING.search(first) or _TELLING.search(line) or _TELLING.search(behind):
        return False
    if "`" in line and "`" in behind:  # inline code
        first = line = line.rpartition("`")[2]
        behind = behind.partition("`")[0]
    is_prose = any(map(_HAN.search, (first, line, _COMMENT.split(behind, maxsplit=1)[0])))
    if not is_prose and bisect(surroundings.fences, start) % 2:
        return True
    before = _BEFORE.search(code)
    if before is None or not _BEHIND.match(behind):
        return False
    if before["value"]:
        return not is_prose
    is_called = brackets[:1] in ("(", "[")
    return is_called and (not is_prose or before["name"] is not None or brackets[:2] == "([")
