"""The kit of every page that this project writes: one file that opens from disk without a single request.

Pages show the text of strangers. So a page may do little: its content-security policy allows its own style sheet, and
one script where it has one, by their hashes, and no image, font, frame, form or connection at all. And text is escaped
in one place: `tag` takes every string for text that is not `Html`. Style attributes are refused by the policy; colours
and sizes are classes of the sheet, `corpus.engine.chart` has the drawings.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Collection, Iterable, Sequence
from importlib import resources

VOID = frozenset(("br", "circle", "input", "line", "path", "rect", "use"))  # closed at once where nothing is inside
KEPT = "\n\t\u3000"  # unprintable by Python's account, and no danger
LONGEST_NUMBER = 20  # characters of a cell


class Html(str):
    """Markup of ours; every other string is text."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Text for an element or a quoted attribute; what is invisible or turns the line round is spelled out.

    >>> escape('<b title="学">\\u202e')
    '&lt;b title=&quot;学&quot;&gt;\\\\u202e'
    """
    if isinstance(text, Html):
        return text
    shown = (c if c.isprintable() or c in KEPT else c.encode("unicode_escape").decode() for c in text)
    return Html(html.escape(text if text.isprintable() else "".join(shown)))


def tag(name: str, *parts: str, **attributes: str | float | None) -> Html:
    """An element. Of an attribute's name a last underscore is left out and others are hyphens; None leaves it
    out, and of numbers one digit is enough.

    >>> tag("text", "a < b", class_="soft", text_anchor="end", x=1.25, y=None)
    '<text class="soft" text-anchor="end" x="1.2">a &lt; b</text>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
            words.append(f'{key.removesuffix("_").replace("_", "-")}="{shown}"')
    start = " ".join(words)
    if name in VOID and not any(parts):
        return Html(f"<{start}/>")
    return Html(f"<{start}>{''.join(map(escape, parts))}</{name}>")


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    kinds: Sequence[str | None] = (),
    numeric: Collection[int] | None = None,
) -> Html:
    """A table that scrolls sideways where it is wide.

    Args:
        kinds: classes of rows, where some have one.
        numeric: the columns that are set to the right; else those whose cells all begin with a digit and are short.
    """
    if numeric is None:
        numeric = [at for at in range(len(columns)) if all(map(_is_number, (row[at] for row in rows)))]
    right = ["num" if at in numeric else None for at in range(len(columns))]
    head = [tag("th", name, class_=kind) for name, kind in zip(columns, right, strict=True)]
    body = [
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, right, strict=True)), class_=of_row)
        for row, of_row in zip(rows, kinds or [None] * len(rows), strict=True)
    ]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", whole, class_="scroll narrow" if len(columns) == 2 else "scroll")


def cards(figures: Iterable[tuple[str, str]]) -> Html:
    """Figures that sum a page up, each with what it is."""
    shown = (tag("div", tag("b", figure), tag("span", what, class_="soft"), class_="card") for figure, what in figures)
    return tag("div", *shown, class_="cards")


def document(
    title: str,
    about: str,
    body: Iterable[str],
    footer: str = "",
    *,
    style: str = "",
    after: Iterable[str] = (),
    script: str | None = None,
    lang: str = "en",
) -> str:
    """The page: a heading, `body`, `footer`; `after` stands below all that. `script` is what a <script> of theirs may
    hold, whole.

    Args:
        about: what kind of page it is.
        style: rules of this kind of page alone.
        lang: its language, a BCP 47 tag.
    """
    folder = resources.files("corpus.engine")
    sheet = "".join(folder.joinpath(name).read_text("utf-8") for name in ("chart.css", "page.css")) + style
    scripts = "" if script is None else f"script-src 'sha256-{_hash(script)}'; "
    policy = f"default-src 'none'; style-src 'sha256-{_hash(sheet)}'; {scripts}base-uri 'none'; form-action 'none'"
    kind = f"{about} · 文海 wenhai" if about else "文海 wenhai"
    main = [tag("h1", title, " ", tag("small", kind)), *body, tag("footer", footer) if footer else ""]
    return "\n".join(
        [
            f'<!DOCTYPE html>\n<html lang="{lang}">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            tag("title", f"{title} · {about}" if about else title),
            f"<style>{sheet}</style>\n</head>\n<body>\n<main>",
            *map(escape, main),
            "</main>",
            *map(escape, after),
            "</body>\n</html>\n",
        ]
    )


def _is_number(cell: str) -> bool:
    """Also one with a unit; not a sentence that begins with one."""
    return cell[:1].isdigit() and len(cell) <= LONGEST_NUMBER


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
