"""What the reader of HTML looks up: elements, the names of classes and ids, character references, character classes.

Everything is an open-addressed hash table over 64-bit FNV-1a hashes of lower-case names, or an array indexed by code
point, so that the reader (reader.py) makes no Python object. Built once a process.
"""

from __future__ import annotations

import html.entities
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# What an element does, as bits.
(
    BREAK,  # a new line begins before and after it
    PUSH,  # it stands on the stack of open elements
    SKIP,  # it and all below it is no article text
    RAW,  # what it holds is text up to its end tag, and no article text
    CELL,
    ROW,  # ends an open cell
    ITEM,
    TERM,
    LIST,
    ORDERED,
    TABLE,
    PRE,
    LINK,
    HEADING,
    PARAGRAPH,
    FORM,  # the line model sees the bits up to here
    VOID,
    TITLE,
    IGNORED,  # html, head and body: their attributes say nothing about the text (style="display:none" until loaded)
    CLOSES_PARAGRAPH,
    NODE,  # has a row among the nodes; on the stack only
    RUBY,  # a part of a ruby annotation: the next part, or a block, ends it
    FOREIGN,  # XML inside HTML: there `<x/>` is a whole element
    CODE,  # raw text that nobody reads, also where it never ends
    BREAKS_OUT,  # its start tag ends foreign content (HTML standard, 13.2.6.5; not font, which asks for attributes)
    HOLDS_HTML,  # a part of foreign content in which HTML is at home
) = (1 << place for place in range(26))

BLOCK = BREAK | PUSH | CLOSES_PARAGRAPH
ELEMENTS: Mapping[str, int] = {
    **dict.fromkeys(
        "address article aside blockquote center details dialog div fieldset figcaption figure footer header"
        " hgroup main menu nav search section summary".split(),
        BLOCK,
    ),
    **dict.fromkeys("h1 h2 h3 h4 h5 h6".split(), BLOCK | HEADING),
    **dict.fromkeys("ul dir dl".split(), BLOCK | LIST),
    "ol": BLOCK | LIST | ORDERED,
    "li": BLOCK | ITEM,
    **dict.fromkeys("dt dd".split(), BLOCK | TERM),
    **dict.fromkeys("pre listing".split(), BLOCK | PRE),
    "table": BLOCK | TABLE,
    **dict.fromkeys("td th".split(), PUSH | CELL),
    **dict.fromkeys("tr tbody thead tfoot caption".split(), BREAK | ROW),
    "p": BREAK | PARAGRAPH | CLOSES_PARAGRAPH,
    **dict.fromkeys("br hr".split(), BREAK | VOID),
    **dict.fromkeys("area base col embed img input link meta param source track wbr".split(), VOID),
    "form": BREAK | FORM | CLOSES_PARAGRAPH,
    "a": LINK,
    **dict.fromkeys("noscript template button select datalist object canvas audio video map".split(), PUSH | SKIP),
    "svg": PUSH | SKIP | FOREIGN,
    "ruby": PUSH,
    **dict.fromkeys("rb rtc".split(), PUSH | RUBY),
    **dict.fromkeys("rt rp".split(), PUSH | SKIP | RUBY),
    **dict.fromkeys("script style".split(), RAW | CODE),
    **dict.fromkeys("iframe noembed noframes textarea".split(), RAW),
    "title": RAW | TITLE,
    **dict.fromkeys("html head body".split(), IGNORED),
    **dict.fromkeys("foreignobject desc".split(), PUSH | HOLDS_HTML),
}
BREAKING_OUT = (
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta"
    " nobr ol p pre ruby s small span strong strike sub sup table tt u ul var"
).split()
ELEMENTS = {**ELEMENTS, **{name: ELEMENTS.get(name, 0) | BREAKS_OUT for name in BREAKING_OUT}}

# What a class, id, role or itemprop says about its element, as bits. Whole names, and the words that they are made of
# ("hotNewsList" is hot, news and list), each list from the markup of the platforms that Chinese sites are built with.
(
    BODY_HINT,
    CONTENT_HINT,
    COMMENT_HINT,
    RELATED_HINT,
    SIDE_HINT,
    NAV_HINT,
    FOOT_HINT,
    SHARE_HINT,
    AD_HINT,
    META_HINT,
    HEAD_HINT,
    POST_HINT,
    POPUP_HINT,
    NUMBERS_HINT,
    APART_HINT,  # the element itself says that it is beside the article
    CONCEALED_HINT,  # style sheets hide what is named so
) = (1 << place for place in range(16))
NAME_HINTS = {
    BODY_HINT: "js_content artibody article-content article_content articlecontent article-body articlebody "
    "entry-content content-article post-content post_content post-body main-content detail-content endtext"
    " main_content trs_editor article_text article-text newscontent news_content news-content pages_content"
    " vsb_content contenttext post_text cnblogs_post_body content_views article-detail article-holder"
    " rich_media_content ucap-content zoom markdown-body articletext textbody con_txt lemma-summary show_text"
    " article-main article_body entry-body news_txt news-text rm_txt_con",
    POST_HINT: "t_f postmessage reply_content d_post_content topic-richtext reply-content richcontent answer-content",
    NUMBERS_HINT: "gutter lineno linenos line-numbers line-number line-numbers-rows hljs-ln-numbers rouge-gutter "
    "linenumber "
    "linenodiv ln-num pre-numbering blob-num",
    NAV_HINT: "curpos page-nav docnav headerlink skip-link mw-editsection",
    CONCEALED_HINT: "sr-only visually-hidden debug",
    SHARE_HINT: "bdsharebuttonbox",
}
WORD_HINTS = {
    CONTENT_HINT: "article artical arti content contents post entry text txt detail details main news story read body",
    COMMENT_HINT: "comment comments cmt cmts comm pinglun pl discuss reply replies respond review disqus gitalk valine",
    RELATED_HINT: "related relate relation relative recommend recommended recom rec tuijian xiangguan hot rank ranking "
    "guess similar like latest popular top10 rand more",
    SIDE_HINT: "side sidebar aside right rightbar sider widget column2 leftbar",
    NAV_HINT: "nav navbar navigation navi menu menus submenu crumb crumbs breadcrumb breadcrumbs bread position "
    "location "
    "pager pages pagination pagebar paging toc catalog directory subnav topnav tab tabs prev next",
    FOOT_HINT: "footer foot copyright bottom friendlink friendlinks links link beian",
    SHARE_HINT: "share sharing social qrcode weixin digg tool tools toolbar vote action actions btn btns button app "
    "download "
    "player video",
    AD_HINT: "ad ads adv advert adbox adsense gg guanggao banner promotion promo sponsor",
    META_HINT: "meta info author byline date time pubtime source src from tag tags keyword keywords label editor copy "
    "statement disclaimer declare summary abstract desc property",
    HEAD_HINT: "header head top topbar logo search login register user profile",
    POPUP_HINT: "popup modal dialog tooltip toast mask tip tips notice",
}
ROLE_HINTS = {
    NAV_HINT: "navigation menu menubar",
    HEAD_HINT: "banner search",
    FOOT_HINT: "contentinfo",
    POPUP_HINT: "dialog",
    SIDE_HINT: "complementary",
    CONTENT_HINT: "main article",
}
ELEMENT_HINTS = {
    "nav": NAV_HINT | APART_HINT,
    "footer": FOOT_HINT | APART_HINT,
    "aside": SIDE_HINT | APART_HINT,
    "dialog": POPUP_HINT | APART_HINT,
    "header": HEAD_HINT,
    "article": CONTENT_HINT,
    "main": CONTENT_HINT,
}
ATTRIBUTES = {
    name: place
    for place, name in enumerate("class id style hidden aria-hidden role itemprop href colspan rowspan".split(), 1)
}
(ATTRIBUTE_CLASS, ATTRIBUTE_ID, ATTRIBUTE_STYLE, ATTRIBUTE_HIDDEN, ATTRIBUTE_ARIA_HIDDEN) = range(1, 6)
(ATTRIBUTE_ROLE, ATTRIBUTE_ITEMPROP, ATTRIBUTE_HREF, ATTRIBUTE_COLSPAN, ATTRIBUTE_ROWSPAN) = range(6, 11)

# Classes of characters, as bits.
(
    LETTER,
    END,  # the last character of a sentence
    OPENER,  # may stand before what a line begins with
    START,  # first character of a line that may be page furniture (lines.py)
    INSIDE,  # a line that holds one may be page furniture
    BYLINE,  # a line that holds one may name the author
    SPACE,  # collapses with its neighbours into one space
    DROPPED,  # noncharacters and NUL
    COMMA,  # inside a sentence
) = (1 << place for place in range(9))

COMMAS = "，、,"
END_MARKS = "。！？；…!?.;:：”」』）)"
OPENERS = "（(【[［〔■◆★●•-—<>«»›|· \u3000"

HASH_START = -3750763034362895579  # FNV-1a, as signed 64-bit integers
HASH_PRIME = 1099511628211


class Tables(NamedTuple):
    """The arguments of the reader, in its order."""

    elements: Array  # int64[slots, 3]: hash, bits, hints
    names: Array  # int64[slots, 2]: hash (of kind and name), attribute or hints
    references: Array  # int64[slots, 4]: hash, first code point, second or 0, whether it needs no semicolon
    characters: Array  # uint16[65536]


def name_hash(name: str, kind: int = 0) -> int:
    """FNV-1a of a lower-case ASCII name; `kind` tells apart the spaces of names that share a table.

    >>> name_hash("")
    -3750763034362895579
    """
    value = (HASH_START + kind) & (2**64 - 1)
    for byte in name.encode():
        value = ((value ^ byte) * HASH_PRIME) & (2**64 - 1)
    return value - 2**64 if value >= 2**63 else value


def hash_table(rows: Iterable[tuple[int, ...]], slots: int, width: int) -> Array:
    """int64[slots, width] for syntax.lookup: rows that begin with a hash; of equal ones the last counts."""
    table = np.zeros((slots, width), np.int64)
    for row in rows:
        slot = (row[0] >> 17) & (slots - 1)
        while table[slot, 0] not in (0, row[0]):
            slot = (slot + 1) & (slots - 1)
        table[slot, : len(row)] = row
    table.setflags(write=False)
    return table


KIND_ATTRIBUTE, KIND_NAME, KIND_WORD, KIND_ROLE, KIND_ITEMPROP = 1, 2, 3, 4, 5


@lru_cache(maxsize=1)
def references() -> Array:
    """The third of the tables: the character references of HTML."""
    found = []
    for name, text in html.entities.html5.items():
        if name.endswith(";"):
            codes = [ord(character) for character in text]
            is_legacy = name[:-1] in html.entities.html5
            found.append((name_hash(name[:-1]), codes[0], codes[1] if len(codes) > 1 else 0, int(is_legacy)))
    return hash_table(found, 8192, 4)


@lru_cache(maxsize=1)
def tables(start: str, inside: str, byline: str) -> Tables:
    """The tables of the reader; the arguments are the characters that the line rules (lines.py) want to be told of."""
    named: list[tuple[int, int]] = [(name_hash(name, KIND_ATTRIBUTE), value) for name, value in ATTRIBUTES.items()]
    for kind, hints in ((KIND_NAME, NAME_HINTS), (KIND_WORD, WORD_HINTS), (KIND_ROLE, ROLE_HINTS)):
        named += [(name_hash(name, kind), hint) for hint, names in hints.items() for name in names.split()]
    named.append((name_hash("articlebody", KIND_ITEMPROP), BODY_HINT))
    elements = [(name_hash(name), bits, ELEMENT_HINTS.get(name, 0)) for name, bits in ELEMENTS.items()]
    return Tables(
        hash_table(elements, 512, 3),
        hash_table(named, 2048, 2),
        references(),
        _characters(start, inside, byline),
    )


def _characters(start: str, inside: str, byline: str) -> Array:
    bits = np.zeros(0x10000, np.uint16)
    for code in range(0x10000):
        character = chr(code)
        if character.isalnum() and not character.isdecimal():
            bits[code] = LETTER
    for characters, bit in (
        (END_MARKS, END),
        (COMMAS, COMMA),
        (OPENERS, OPENER),
        (start, START),
        (inside, INSIDE),
        (byline, BYLINE),
        ("\u00a0" + "".join(map(chr, range(0x2002, 0x200B))), SPACE),
        ("\0\ufffe\uffff" + "".join(map(chr, range(0xFDD0, 0xFDF0))), DROPPED),
    ):
        for character in characters:
            bits[ord(character)] |= bit
    bits.setflags(write=False)
    return bits
