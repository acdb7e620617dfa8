"""Templates that carry text of the page: what of their parameters a reader sees. Any other template is dropped.

Names are those of zh.wikipedia.org and zh.wikisource.org, in lower case. A value lists parameters by position or name;
the first one that is not empty is taken.
"""

from __future__ import annotations

import re

Labels = tuple[str, ...]

_FIRST: Labels = ("1",)
_LAST: Labels = ("3", "2", "1")
_LABELLED: Labels = ("3", "1")

KEPT: dict[str, Labels] = {
    # marked up or formatted text
    **dict.fromkeys(
        "nowrap nobr nobold noitalic small smaller smalldiv big bigger large larger bold b strong em i u underline nobreak "
        "strikethrough sup sub sc smallcaps code kbd mono var abbr tooltip ruby ruby-py ruby-zh-b ruby-zh-p zy rubyh "
        "frac center right left indent poem poemquote blockquote bquote quote quotation cquote rquote 引文 引言 引用 "
        "font-size flag flagcountry nihongo val ipa ipa-zh zwp".split(),
        ("1", "text", "content", "quote"),
    ),
    **dict.fromkeys("lang lang2 ruby-ja color colour fontcolor fs resize font2 写法 寫法".split(), ("2", "text")),
    **dict.fromkeys(("font color", "transl", "transliteration", "font"), _LAST),
    # links with a label: to another language's wiki, to another project
    **dict.fromkeys(("le", "ilh", "ill", "interlanguage link", "interlanguage link multi"), ("lt", *_LABELLED)),
    "tsl": ("4", "3"),
    "translink": ("4", "3", "2"),
    "link": ("label", "1"),
    **dict.fromkeys(("ws", "wikisource", "wikt", "w", "wp", "s", "wsl"), ("2", "1")),
    # Wikisource: proper names, rare characters, variants, notes between the lines
    **dict.fromkeys(
        "專名 专名 專名號 書名 书名 書名號 波浪線 姓名 地名 僻字 ! 另 异体 異體 yl 註 注 夾注 * 小字 双行注 雙行注".split(),
        _FIRST,
    ),
}

LITERAL = {
    **dict.fromkeys(("·", "•", "dot", "middot", "bullet", "int dot"), "·"),
    **dict.fromkeys(("snd", "spaced ndash", "ndash", "–", "dash"), "–"),
    **dict.fromkeys(("mdash", "—"), "——"),
    "=": "=",
    "nbsp": " ",
    **dict.fromkeys(("br", "break", "p", "col-break"), "\n"),
}

HEADERS = frozenset(("header", "header2", "novel", "header/sandbox", "header periodical", "translation header"))

_LANGUAGE_LABEL = re.compile(r"(?:lang|link|ipa)-[a-z]{2,3}(?:-[a-z]+)*")
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


def lifetime(parameters: dict[str, str]) -> str:
    """Birth and death as `{{bd|1881年|9月25日|1936年|10月19日}}` shows them.

    >>> lifetime({"1": "1881年", "2": "9月25日", "3": "1936年", "4": "10月19日"})
    '（1881年9月25日－1936年10月19日）'
    """
    born, died = (parameters.get(year, "") + parameters.get(day, "") for year, day in (("1", "2"), ("3", "4")))
    return f"（{born}－{died}）" if born or died else ""
