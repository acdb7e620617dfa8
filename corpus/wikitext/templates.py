"""Templates that carry text of the page: what of their parameters a reader sees. Any other template is dropped.

Names are those of zh.wikipedia.org and zh.wikisource.org, in lower case. A value lists parameters by position or name;
the first one that is not empty is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Labels = tuple[str, ...]

_FIRST: Labels = ("1",)
_LAST: Labels = ("3", "2", "1")
_LABELLED: Labels = ("3", "1")

KEPT: dict[str, Labels] = {
    # marked up or formatted text
    **dict.fromkeys(
        "nowrap nobr nobold noitalic small smaller smalldiv big bigger large larger bold b strong em i u"
        " underline nobreak strikethrough sup sub sc smallcaps code kbd mono var abbr tooltip ruby ruby-py"
        " ruby-zh-b ruby-zh-p zy rubyh center right left indent poem poemquote blockquote bquote quote"
        " quotation cquote rquote 引文 引言 引用 font-size flag flagcountry nihongo ipa ipa-zh zwp math mvar chem2"
        " nts ruby-ja 拼音 py bpmf 注音 sic plainlist dropinitial".split(),
        ("1", "text", "content", "quote"),
    ),
    **dict.fromkeys(("not a typo", "drop initial", "drop cap"), _FIRST),
    **dict.fromkeys(("columns-list", "column-list"), ("2", "1")),
    **dict.fromkeys("lang lang2 color colour fontcolor fs resize font2 写法 寫法".split(), ("2", "text")),
    **dict.fromkeys(("font color", "transl", "transliteration", "font"), _LAST),
    # links with a label: to another language's wiki, to another project
    **dict.fromkeys(("le", "ilh"), ("lt", *_LABELLED)),
    **dict.fromkeys(("ill", "illm", "interlanguage link", "interlanguage link multi"), ("lt", "1")),
    "tsl": ("4", "3"),
    "translink": ("4", "3", "2"),
    "link": ("label", "1"),
    **dict.fromkeys(("ws", "wikisource", "wikt", "w", "wp", "s", "wsl"), ("2", "1")),
    # Wiktionary: links to words
    **dict.fromkeys(("l", "m", "mention"), ("3", "2")),
    **dict.fromkeys(("zh-l", "zh-m"), _FIRST),
    # Wikisource: proper names, rare characters, variants
    **dict.fromkeys("專名 专名 專名號 書名 书名 書名號 波浪線 姓名 地名 僻字 ! 另 异体 異體 yl 小字".split(), _FIRST),
}

LITERAL = {
    **dict.fromkeys(("·", "•", "dot", "middot", "bullet", "int dot"), "·"),
    **dict.fromkeys(("snd", "spaced ndash", "ndash", "–", "dash"), "–"),
    **dict.fromkeys(("mdash", "—"), "——"),
    "=": "=",
    "nbsp": " ",
    **dict.fromkeys(("br", "break", "p", "col-break"), "\n"),
    "°c": "°C",
    "°f": "°F",
}

BLOCKS = frozenset(  # what they show stands on lines of its own
    "center right left poem poemquote blockquote bquote quote quotation cquote rquote 引文 plainlist columns-list "
    "column-list".split()
)

HEADERS = frozenset(("header", "header2", "novel", "header/sandbox", "header periodical", "translation header"))

_LANGUAGE_LABEL = re.compile(r"(?:lang|link|ipa)-[a-z]{2,3}(?:-[a-z]{1,9}){0,3}")
_HELPER_LABEL = re.compile(r"internal link helper(?:/[a-z-]+)?")
_PREFIX = re.compile(r"(?:template|模板|樣板|t)\s*:\s*")


def normal_name(name: str) -> str:
    """A template's name in lower case, without its namespace.

    >>> normal_name(" Template:Lang_en ")
    'lang en'
    """
    return _PREFIX.sub("", " ".join(name.replace("_", " ").casefold().split()), count=1)


def labels(name: str) -> Labels | None:
    """Which parameters hold the text of a template by its normal name, or None when it shows none of the page's own."""
    if name in KEPT:
        return KEPT[name]
    if _LANGUAGE_LABEL.fullmatch(name):
        return _LABELLED if name.startswith("link-") else _FIRST
    return _LABELLED if _HELPER_LABEL.fullmatch(name) else None


def _lifetime(parameters: Mapping[str, str]) -> str:
    """Birth and death, of `{{bd|1881年|9月25日|1936年|10月19日}}`."""
    born, died = (parameters.get(year, "") + parameters.get(day, "") for year, day in (("1", "2"), ("3", "4")))
    return f"（{born}－{died}）" if born or died else ""


def _converted(parameters: Mapping[str, str]) -> str:
    """A measure as it stands: `{{convert|5|to|10|km|mi}}` is `5–10 km`."""
    first, second, last, unit = (parameters.get(key, "") for key in ("1", "2", "3", "4"))
    return f"{first}–{last} {unit}" if second in _BETWEEN else f"{first} {second}".strip()


def _fraction(parameters: Mapping[str, str]) -> str:
    """`1/2`, or `3 1/2`; one number alone is the denominator."""
    numbers = _positional(parameters)[-3:]
    numbers = ["1", *numbers] if len(numbers) == 1 else numbers
    return " ".join([*numbers[:-2], "/".join(numbers[-2:])])


def _value(parameters: Mapping[str, str]) -> str:
    """A number with its exponent and unit, of `{{val|3.14|e=8|u=m}}`."""
    power, unit = parameters.get("e", ""), parameters.get("u", parameters.get("ul", ""))
    return parameters.get("1", "") + (f"×10^{power}" if power else "") + (f" {unit}" if unit else "")


def _note(parameters: Mapping[str, str]) -> str:
    """A commentary between the lines, which is set in small characters, in brackets."""
    text = parameters.get("1", "")
    return f"（{text}）" if text else ""


def _positional(parameters: Mapping[str, str]) -> list[str]:
    return [value for name, value in parameters.items() if name.isdecimal() and value]


_BETWEEN = frozenset(("to", "-", "–", "and", "by", "x"))
SHOWN: dict[str, Callable[[Mapping[str, str]], str]] = {
    "bd": _lifetime,
    "convert": _converted,
    **dict.fromkeys(("frac", "sfrac"), _fraction),
    "val": _value,
    "e": lambda parameters: f"×10^{parameters.get('1', '')}",
    **dict.fromkeys(("chem", "gaps"), lambda parameters: "".join(_positional(parameters))),
    **dict.fromkeys(("hlist", "flatlist"), lambda parameters: "、".join(_positional(parameters))),
    **dict.fromkeys(("unbulleted list", "ubl"), lambda parameters: "\n".join(_positional(parameters))),
    **dict.fromkeys(("circa", "c."), lambda parameters: "约" + parameters.get("1", "")),
    "as of": lambda parameters: "截至" + "".join(map("".join, zip(_positional(parameters), "年月日", strict=False))),
    **dict.fromkeys(("註", "注", "夾注", "*", "双行注", "雙行注", "sk notes"), _note),
}
