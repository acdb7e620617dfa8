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
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.mathml import to_tex

MAX_TEX_CHARS = 10_000  # longer is no formula
MAX_MATHML_BYTES = 100_000  # of one formula; a longer one becomes plain text
MAX_TRANSLATED_BYTES = 4_000_000  # MathML that begins further down a page becomes plain text
MAX_RENDERED_BYTES = 1_000_000  # of one formula with its glyphs; MathJax's SVG takes some 100,000

_BLOCKS = rb"p|h[1-6]|[uod]l|li|d[dt]|t[rdh]|table|body|html|article|section|main|footer|header|figure|pre|blockquote"
_START = re.compile(
    rb"<(?:!--|(script|style|textarea|title|iframe|xmp|(?:\w{1,9}:)?math|img|mjx-container"
    rb"|(?:span|div)(?=\s[^<>]*?(?:MathJax|MJXc-|katex|ztext-math|mwe-math-el)))(?=[\s/>]))",
    re.IGNORECASE,
)
_REST = re.compile(rb"""(?:[^>"'=]++|=\s*(?:"[^"]*"|'[^']*')|[="'])*+>""")  # of a tag, quoted as the HTML standard says
_ATTRIBUTE = re.compile(rb"""(?<=[\s"'/])([^\s"'>/=]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_RAW_END = {name: re.compile(rb"</%b[^>]*>" % name, re.I) for name in b"script style textarea title iframe xmp".split()}
_INSIDE = re.compile(rb"<(/?)(?:(span|div|mjx-container)|%b)(?=[\s/>])" % _BLOCKS, re.I)
_MATH = re.compile(rb"<(?:\w{1,9}:)?math(?=[\s>])", re.I)
_MATH_END = re.compile(rb"<(?:(/(?:\w{1,9}:)?math\s*>)|(?:\w{1,9}:)?math[\s>]|/?(?:%b|div)[\s>])" % _BLOCKS, re.I)
_ANNOTATION = re.compile(
    rb"""<(?:\w{1,9}:)?annotation\s[^<>]*encoding\s*=\s*["']?(?:application/x-tex|image/tex|text/x-latex|(?:La)?TeX)\b"""
    rb"[^<>]*>((?:[^<]|<(?![/!a-z]))*+)",
    re.I,
)
_DATA_MATHML = re.compile(rb"""\sdata-mathml\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_KATEX_TEXT = re.compile(rb"""<span class=["']katex-mathml["']>([^<]*)</span>""")
_MATHJAX = re.compile(
    rb"(?:^|\s)(?:MathJax(?:_(?:Preview|SVG|CHTML|PHTML|MathML|Display|SVG_Display))?|MJXc-display)(?:\s|$)"
)
_CONTAINER = re.compile(rb"(?:^|\s)(?:ztext-math|mwe-math-element|katex(?:-display|--display|--inline)?)(?:\s|$)")
_SOURCE_FOLLOWS = re.compile(
    rb"\s*<(?:script\s[^<>]*\bmath/(?:tex|mml)|(?:span|div)\s[^<>]*class=[\"']?(?:MathJax|mjx-chtml|MJXc-))"
)
_SERVICE = re.compile(
    rb"(?:/equation\?tex=|codecogs\.com/\w+\.(?:latex|image)\?|latex\.csdn\.net/eq\?|/math\?(?:formula|math)=|/chart\?[^#]*?chl="
    rb"|upmath\.me/\w+/|latex\.php\?latex=|/gr/latex\?)([^#\0]*?)(?:[#\0]|$|&(?:ch\w+|bg|fg|s)=)"
)
_IMAGE = re.compile(
    rb"\b(?:mathcode|equation|tex|latex|math(?:jax|-inline|-block)?|formula|mwe-math-fallback-image-\w+)(?:\s|$)"
)
_NO_TEX = re.compile(r"[\u4e00-\u9fff]|\.(?:png|gif|jpe?g|svg|webp)$|^(?:img|image|latex|formula|equation|math)$", re.I)
_STYLE = re.compile(
    r"(?:\\(?:(?:display|text)style|inline|large|dpi\{\d{1,4}\}|(?:bg|fn)_\w{1,20}|space)(?![A-Za-z])\s{0,9}){1,8}"
)
_DELIMITED = re.compile(r"(\\\[|\$\$)(.+)(?:\\\]|\$\$)|(?:\\\(|\$)(.+)(?:\\\)|\$)")


@kernel()
def _is_marked(data: Any) -> bool:
    """Whether `math`, `atex` (katex, latex), `?tex`, `eeim` or `cht=` stands in the page; no branches: many bytes at once."""
    found = False
    for i in range(len(data) - 3):
        a, b, c, d = data[i], data[i + 1], data[i + 2], data[i + 3]
        found |= (a == 109) & (b == 97) & (c == 116) & (d == 104)
        found |= ((a == 97) | (a == 63)) & (b == 116) & (c == 101) & (d == 120)
        found |= (a == 101) & (b == 101) & (c == 105) & (d == 109)
        found |= (a == 99) & (b == 104) & (c == 116) & (d == 61)
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
    if name in _RAW_END:
        end = _RAW_END[name].search(page, start)
        kind = _attributes(tag[0]).get("type", "") if name == b"script" and b"math/" in tag[0] else ""
        if end is None or not kind.startswith(("math/tex", "math/mml")):
            return (end.end() if end else 0), None
        source, display = page[start : end.start()], "display" in kind
        return end.end(), _formula(source, start, display) or _dollars(source.decode("utf-8", "replace"), display)
    attributes = _attributes(tag[0])
    if name == b"img":
        return start, _image(attributes)
    if name.endswith(b"math"):
        end = _MATH_END.search(page, start)
        if end is None or end[1] is None:  # the search ended at the next formula or block: so it stays linear
            return start, None
        return end.end(), _formula(b"<math" + page[tag.start() : end.end()], start, False)
    classes = attributes.get("class", "").encode()
    is_mathjax = _MATHJAX.search(classes) is not None
    if not (is_mathjax or name == b"mjx-container" or _CONTAINER.search(classes)):
        return start, None
    stop, position = _closing(page, name, start)
    if stop < 0:
        return position, None
    inside = attributes.get("data-mathml", "").encode() or page[start:stop]
    declared = attributes.get("display", attributes.get("data-eeimg"))
    display = declared in ("true", "block", "2") or b"isplay" in classes
    if "data-tex" in attributes:
        return position, _dollars(attributes["data-tex"], display)
    if is_mathjax and _SOURCE_FOLLOWS.match(page, position):
        return position, b""
    formula = _formula(inside, start, display or b"fallback-image-display" in inside)
    return (start if formula is None and b"mwe-math" in classes else position), formula  # there an image may follow


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
    addresses = "\0".join(tag.get(name, "") for name in ("src", "data-actualsrc", "data-src", "data-original"))
    service = _SERVICE.search(addresses.encode())
    classes = tag.get("class", "")
    if not (service or "eeimg" in tag or _IMAGE.search(classes.encode())):
        return None
    tex = tag.get("data-latex") or tag.get("data-tex") or tag.get("alt", "")
    if _NO_TEX.search(tex) and "\\" not in tex:
        tex = ""
    if service and not any(sign in tex for sign in "\\^_{="):
        query = service[1].replace(b"&plus;", b"%2B").replace(b"&space;", b" ")
        if re.search(rb"%(?:2B|3D|2C|28)", query, re.I):  # what encodes these writes a space as a plus sign
            query = query.replace(b"+", b" ")
        tex = unquote_to_bytes(query).decode("utf-8", "replace") or tex
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
    for _ in range(4):
        style = _STYLE.match(tex)
        tex = tex[style.end() if style else 0 :].strip()
        tex = tex[1:-1] if _is_braced(tex) else tex
    mark = "$$" if display else "$"
    return html.escape(mark + tex.strip() + mark).encode("utf-8", "replace") if tex.strip() else None


def _is_braced(tex: str) -> bool:
    """Whether the brace at the start closes at the end."""
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", tex):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth <= 0:
            return brace.end() == len(tex) and tex.startswith("{")
    return False


def _attributes(tag: bytes) -> dict[str, str]:
    """The attributes of a tag, the first of each name."""
    found: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(tag):
        found.setdefault(_text(name).lower(), _text(b"".join(values)))
    return found


def _text(data: bytes) -> str:
    return html.unescape(data.decode("utf-8", "replace"))
