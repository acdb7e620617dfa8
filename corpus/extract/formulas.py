"""Formulas as TeX between dollars: each once, however often a page holds it (script, MathML, glyphs, image).

A renderer leaves up to three copies of a formula: its source (a script of MathJax, an annotation, an attribute), MathML
for screen readers, and glyphs. `with_tex` puts the source in place of all of them before the page is read, or the
MathML as TeX where no source was kept; glyphs that have neither stay, as does TeX that a page delimits in its text
(`\\(`, `$$`), and what does not close before its paragraph ends. Each byte is passed by a tag once and by the search
for an end once. A page without a mark of formulas costs 0.1 ms a megabyte.
"""

from __future__ import annotations

import html
import re
from itertools import accumulate
from typing import Any
from urllib.parse import unquote

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.mathml import to_tex

MAX_TEX_CHARS = 10_000  # longer is no formula
MAX_MATHML_BYTES = 100_000  # of one formula; a longer one becomes plain text
MAX_TRANSLATED_BYTES = 4_000_000  # MathML that begins further down a page becomes plain text
MAX_RENDERED_BYTES = 1_000_000  # of one formula with its glyphs; MathJax's SVG takes some 100,000

_BLOCKS = rb"p|h[1-6]|[uod]l|li|d[dt]|t[rdh]|table|body|html|article|section|main|footer|header|figure|pre|blockquote"
_START = re.compile(
    rb"<(?=[!stimxd]|\w{1,9}:)(?:!--|(script|style|textarea|title|iframe|xmp|(?:\w{1,9}:)?math|img|mjx-container"
    rb"|(?:span|div)(?=\s[^<>]*?(?:MathJax|MJXc-|katex|ztext-math|mwe-math-el)))(?=[\s/>]))",
    re.IGNORECASE,
)
_REST = re.compile(rb"""(?:[^>"'=]++|=\s*(?:"[^"]*"|'[^']*')|[="'])*+>""")  # of a tag, quoted as the HTML standard says
_ATTRIBUTE = re.compile(rb"""(?<=[\s"'/])([^\s"'>/=]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_RAW = frozenset(b"script style textarea title iframe xmp".split())
_INSIDE = re.compile(rb"<(/?)(?:(span|div|mjx-container)|%b)(?=[\s/>])" % _BLOCKS, re.I)
_MATH = re.compile(rb"<(?:\w{1,9}:)?math(?=[\s>])", re.I)
_MATH_END = re.compile(rb"<(?:(/(?:\w{1,9}:)?math\s*>)|(?:\w{1,9}:)?math[\s>]|/?(?:%b|div)[\s>])" % _BLOCKS, re.I)
_ANNOTATION = re.compile(
    rb"""(?i)<(?:\w{1,9}:)?annotation\s[^<>]*encoding\s*=\s*["']?[a-z/-]{0,15}tex\b[^<>]*>((?:[^<]|<(?![/!a-z]))*+)"""
)
_DATA_MATHML = re.compile(rb"""\sdata-mathml\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_KATEX_TEXT = re.compile(rb"""<span class=["']katex-mathml["']>([^<]*)</span>""")
_MATHJAX = ("MathJax", "MJXc-display")  # begin the class of what MathJax draws
_CONTAINER = set("ztext-math mwe-math-element katex katex-display katex--display katex--inline".split())
_IMAGE = set("mathcode equation tex latex math mathjax math-inline math-block formula".split())
_SOURCE_FOLLOWS = re.compile(
    rb"\s*<(?:script\s[^<>]*\bmath/(?:tex|mml)|(?:span|div)\s[^<>]*class=[\"']?(?:MathJax|mjx-chtml|MJXc-))"
)
_IMAGE_MARK = re.compile(rb"(?i)tex|math|equation|formula|/eq\?|eeimg")  # one is in each tag that _image takes
_SERVICE = re.compile(
    r"(?:/equation\?tex=|codecogs\.com/\w+\.(?:latex|image)\?|latex\.csdn\.net/eq\?|/math\?(?:formula|math)="
    r"|upmath\.me/\w+/|latex\.php\?latex=)([^#\0]*?)(?:[#\0]|$|&(?:bg|fg|s)=)"
)
_NO_TEX = re.compile(r"[\u4e00-\u9fff]|\.(?:png|gif|jpe?g|svg|webp)$|^(?:img|image|latex|formula|equation|math)$", re.I)
_STYLE = re.compile(
    r"^(?:\\(?:(?:display|text)style|inline|large|dpi\{\d{1,4}\}|(?:bg|fn)_\w{1,20}|space)(?![a-zA-Z])\s{0,9}){1,8}"
)
_DELIMITED = re.compile(r"(\\\[|\$\$)(.+)(?:\\\]|\$\$)|(?:\\\(|\$)(.+)(?:\\\)|\$)")


@kernel()
def _is_marked(data: Any) -> bool:
    """Whether `math`, `atex` (katex, latex) or `?tex` stands in the page; no branches: many bytes at once."""
    found = False
    for i in range(len(data) - 3):
        a, b, c, d = data[i], data[i + 1], data[i + 2], data[i + 3]
        found |= (a == 109) & (b == 97) & (c == 116) & (d == 104)
        found |= ((a == 97) | (a == 63)) & (b == 116) & (c == 101) & (d == 120)
    return found


def with_tex(page: bytes) -> bytes:
    """A page (UTF-8) with its formulas as TeX, escaped, between `$`, or `$$` where they are declared as display.

    >>> with_tex('因<script type="math/tex">x<2</script>而<img eeimg="1" src="/equation?tex=x%5E2">。'.encode()).decode()
    '因$x&lt;2$而$x^2$。'
    """
    if not _is_marked(np.frombuffer(page, np.uint8)):
        return page
    out, done, position = [], 0, 0
    while (start := _START.search(page, position)) is not None:
        tag = _REST.match(page, start.end()) if start[1] else None
        if tag is not None:
            position, formula = _element(page, start[1].lower(), tag)
        else:  # a comment, or a tag without an end
            position, formula = 0 if start[1] else page.find(b"-->", start.end()) + 3, None
        if position <= start.start():  # what has no end leaves untold what follows
            break
        if formula is not None:
            out += [page[done : start.start()], formula]
            done = position
    return b"".join([*out, page[done:]])


def _element(page: bytes, name: bytes, tag: re.Match[bytes]) -> tuple[int, bytes | None]:
    """Where to go on behind an element (0: nowhere), and what stands in its place."""
    start = tag.end()
    if name == b"img":
        return start, _image(_attributes(tag[0])) if _IMAGE_MARK.search(tag[0]) else None
    if name in _RAW:
        end = re.compile(b"(?i)</%b[^>]*>" % name).search(page, start)
        kind = _attributes(tag[0]).get("type", "") if b"math/" in tag[0] else ""
        if end is None or not kind.startswith(("math/tex", "math/mml")):
            return (end.end() if end else 0), None
        source, display = page[start : end.start()], "display" in kind
        return end.end(), _formula(source, start, display) or _dollars(source.decode("utf-8", "replace"), display)
    if name.endswith(b"math"):
        end = _MATH_END.search(page, start)
        if end is None or end[1] is None:  # the search ended at the next formula or block: so it stays linear
            return start, None
        return end.end(), _formula(b"<math" + page[tag.start() : end.end()], start, False)
    attributes = _attributes(tag[0])
    classes = attributes.get("class", "")
    is_mathjax = any(word.startswith(_MATHJAX) for word in classes.split())
    if not (is_mathjax or name == b"mjx-container" or not _CONTAINER.isdisjoint(classes.split())):
        return start, None
    stop, position = _closing(page, name, start)
    if stop < 0:
        return position, None
    inside = attributes.get("data-mathml", "").encode() or page[start:stop]
    declared = attributes.get("display", attributes.get("data-eeimg"))
    display = declared in ("true", "block", "2") or "isplay" in classes
    if "data-tex" in attributes:
        return position, _dollars(attributes["data-tex"], display)
    if is_mathjax and _SOURCE_FOLLOWS.match(page, position):
        return position, b""
    formula = _formula(inside, start, display or b"fallback-image-display" in inside)
    return (start if formula is None and "mwe-math" in classes else position), formula  # there an image may follow


def _closing(page: bytes, name: bytes, start: int) -> tuple[int, int]:
    """Where the end tag of an element begins and ends; -1, and where to go on, if a block or the limit comes first."""
    depth = {b"span": 0, b"div": 0, b"mjx-container": 0, name: 1}
    for tag in _INSIDE.finditer(page, start, start + MAX_RENDERED_BYTES):
        inner = (tag[2] or b"").lower()
        depth[inner] = depth.get(inner, -2) + (-1 if tag[1] else 1)
        if depth[name] == 0:
            return tag.start(), page.find(b">", tag.end()) + 1
        if depth[inner] < 0:
            return -1, tag.start()
    return -1, 0


def _formula(data: bytes, place: int, display: bool) -> bytes | None:
    """The formula that markup holds: its annotation, its alternative text, or its MathML as TeX."""
    if source := _ANNOTATION.search(data):
        return _dollars(_text(source[1]), display)
    if (math := _MATH.search(data)) and (tag := _REST.match(data, math.end())):
        attributes = _attributes(tag[0])
        tex = attributes.get("alttext") or attributes.get("data-latex")
        if not tex and len(data) <= MAX_MATHML_BYTES and place <= MAX_TRANSLATED_BYTES:
            tex = to_tex(data[tag.end() :].decode("utf-8", "replace"))
        display = display or attributes.get("display") == "block"
        return _dollars(tex, display) if tex else html.escape(_text(re.sub(rb"<[^<>]*>", b" ", data))).encode()
    if source := _DATA_MATHML.search(data):
        return _formula(_text(source[1] or source[2] or b"").encode().replace(b"data-mathml", b""), place, display)
    if source := _KATEX_TEXT.search(data):  # CSDN takes the tags out: blank lines, or nothing, part glyphs and source
        parts = re.split(r"\n[^\S\n]*\n", _text(source[1]).strip())
        drawn = re.sub(r"[\s\u200b]", "", _text(re.sub(rb"<[^<>]*>", b"", data[source.end() :])))
        if len(parts) == 1 and sorted(parts[0][: len(drawn)]) == sorted(drawn):
            parts += [parts[0][len(drawn) :]]
        return _dollars(parts[-1], display) if len(parts) > 1 else None
    return None


def _image(tag: dict[str, str]) -> bytes | None:
    """The formula that an image of a formula names in its alternative text or in its address."""
    service = _SERVICE.search(
        "\0".join(tag.get(name, "") for name in ("src", "data-actualsrc", "data-src", "data-original"))
    )
    classes = tag.get("class", "")
    if not (service or "eeimg" in tag or not _IMAGE.isdisjoint(classes.split()) or "mwe-math-fallback" in classes):
        return None
    tex = tag.get("data-latex") or tag.get("data-tex") or tag.get("alt", "")
    if _NO_TEX.search(tex) and "\\" not in tex:
        tex = ""
    if service and not any(sign in tex for sign in "\\^_{="):
        query = service[1].replace("&plus;", "%2B").replace("&space;", " ")
        if re.search("%(?:2B|3D|2C|28)", query, re.I):  # what encodes these writes a space as a plus sign
            query = query.replace("+", " ")
        tex = unquote(query) or tex
    return _dollars(tex, tag.get("eeimg") == "2" or "display" in classes or "math-block" in classes)


def _dollars(tex: str, display: bool) -> bytes | None:
    """TeX without its delimiters, comments and style between dollars; None if nothing is left or it is no formula."""
    if "\n" in tex:
        tex = re.sub(r"(?<!\\)%.*", "", tex)
    tex = " ".join(re.sub(r"<!\[CDATA\[|\]\]>", "", tex).split())
    if len(tex) > MAX_TEX_CHARS:
        return None
    if delimited := _DELIMITED.fullmatch(tex):
        tex, display = delimited[2] or delimited[3], display or delimited[1] is not None
    if tex.endswith("\\\\"):  # so 知乎 declares display
        tex, display = tex[:-2], True
    for _ in range(2):
        tex = _STYLE.sub("", tex).strip()
        depths = list(accumulate((sign == "{") - (sign == "}") for sign in re.sub(r"\\.", "", tex)))
        if tex.startswith("{") and 0 in depths and depths.index(0) == len(depths) - 1:  # closes at the end
            tex = tex[1:-1].strip()
    mark = "$$" if display else "$"
    return html.escape(mark + tex + mark).encode("utf-8", "replace") if tex else None


def _attributes(tag: bytes) -> dict[str, str]:
    """The attributes of a tag, the first of each name."""
    return {_text(name).lower(): _text(b"".join(values)) for name, *values in reversed(_ATTRIBUTE.findall(tag))}


def _text(data: bytes) -> str:
    return html.unescape(data.decode("utf-8", "replace"))
