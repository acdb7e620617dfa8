"""The parts of wikitext that a left-to-right pass takes out before the parser sees the page: tags, tables, line starts.

Every pass is linear in the page. That is why they are not left to the parser, whose time on marks that do not close
grows with the square of their number. Control characters mark what is to be found again later: XML cannot contain them,
and a page is freed of them first.
"""

from __future__ import annotations

import html
import re

HEADING, LIST, PROTECTED, BRACKET = "\x01", "\x02", "\x03", "\x04"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_DROPPED = frozenset(
    "ref references gallery timeline score imagemap templatestyles templatedata mapframe maplink graph indicator "
    "categorytree inputbox charinsert pages pagelist rt rp style script includeonly section phonos chart hiero".split()
)
_RAW = frozenset("nowiki pre syntaxhighlight source math chem ce".split())
_BLOCK = frozenset(
    "br div p poem blockquote center li ul ol dl dd dt tr td th table hr pre syntaxhighlight source".split()
    + [f"h{level}" for level in range(1, 7)]
)
_TAG = re.compile(r"<!--|</?([a-zA-Z][a-zA-Z0-9]*)(?=[\s/>])[^<>]*>")
_TABLE_LINE = re.compile(r"[ \t:]*(\{\|(?!\})|\|\}(?!\}))")
_SWITCH = re.compile(r"__(?:[A-Z]{3,30}|[\u4e00-\u9fff]{2,20})__")
_LIST = re.compile(r"[*#:;]+")
MAX_LEVEL = 6


class Protected:
    """Text that is no markup (`<nowiki>`, `<math>`): taken out, and put back at the end."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def hide(self, text: str) -> str:
        """A mark for a text."""
        self._texts.append(html.unescape(text))
        return f"{PROTECTED}{len(self._texts) - 1}{PROTECTED}"

    def restore(self, text: str) -> str:
        """The text with every mark replaced."""
        parts = text.split(PROTECTED)
        parts[1::2] = (self._texts[int(part)] for part in parts[1::2])
        return "".join(parts)


def without_tags(text: str, protected: Protected) -> str:
    """Comments, references, galleries and the like taken out; of other tags their content kept, blocks on lines."""
    lower = text.lower() if len(text.lower()) == len(text) else text  # to find end tags in any case
    pieces: list[str] = []
    missing: set[str] = set()  # end tags that stand nowhere behind
    position = 0
    while tag := _TAG.search(text, position):
        pieces.append(text[position : tag.start()])
        position = tag.end()
        name = (tag.group(1) or "!").lower()
        if name in _BLOCK:
            pieces.append("\n")
        is_start = text[tag.start() + 1] != "/" and not tag.group().endswith("/>")
        if not is_start or (name != "!" and name not in _DROPPED and name not in _RAW) or name in missing:
            continue
        closing = "-->" if name == "!" else f"</{name}"
        end = lower.find(closing, position)
        if end < 0:
            missing.add(name)
            continue
        if name in _RAW:
            pieces.append(protected.hide(text[position:end]))
        position = end + len(closing)
        if name != "!":
            bracket = text.find(">", position, position + 20)
            position = bracket + 1 if bracket >= 0 else position
            if name in _BLOCK:
                pieces.append("\n")
    pieces.append(text[position:])
    return "".join(pieces)


def without_tables(text: str) -> str:
    """Tables taken out, nested ones with them; of one that never ends the lines that are rows and cells."""
    if "{|" not in text and "|}" not in text:
        return text
    kept: list[str] = []
    starts: list[int] = []
    for line in text.split("\n"):
        mark = _TABLE_LINE.match(line)
        if mark and mark.group(1) == "{|":
            starts.append(len(kept))
            kept.append("|")
        elif mark:
            if starts:
                del kept[starts.pop() :]
            kept.append(line[mark.end() :])
        else:
            kept.append(line)
    if starts:
        kept[starts[0] :] = [line for line in kept[starts[0] :] if not line.lstrip().startswith(("|", "!"))]
    return "\n".join(kept)


def mark_lines(text: str) -> str:
    """Headings and list items behind marks: HEADING and the level, LIST and the bullet; switches like __NOTOC__ out."""
    lines = []
    numbers: list[int] = []  # of the last item, by depth
    for line in _SWITCH.sub("", text).split("\n"):
        item = _LIST.match(line)
        depth = item.end() if item else 0
        del numbers[depth:]
        if item is not None:
            if line[depth - 1] == "#":
                numbers += [0] * (depth - len(numbers))
                numbers[-1] += 1
            bullet = {"*": "• ", "#": f"{numbers[-1] if numbers else 0}. "}.get(line[depth - 1], "")
            lines.append(f"{LIST if bullet else ''}{bullet}{line[item.end() :].strip()}")
        elif line.startswith("=") and (heading := _heading(line.rstrip())):
            level, title = heading
            lines.append(f"{HEADING}{level}{title}")
        else:
            lines.append("" if line.startswith("----") else line)
    return "\n".join(lines)


def _heading(line: str) -> tuple[int, str] | None:
    """Level and text of `== text ==`; with uneven signs the lesser number is the level, the rest belongs to the text.

    >>> _heading("== 历史 =="), _heading("=== 历史 =="), _heading("=")
    ((2, '历史'), (2, '= 历史'), None)
    """
    before, after = (len(line) - len(rest) for rest in (line.lstrip("="), line.rstrip("=")))
    level = min(before, after, MAX_LEVEL, (len(line) - 1) // 2)
    return (level, line[level:-level].strip(" \t")) if level > 0 else None


def balance_braces(text: str, max_depth: int) -> str:
    """The text with `{{`, `[[` and their ends in pairs: those without a partner, and those too deep, are dropped.

    Linear. What is left costs the parser time in proportion to its length, which marks without an end do not.
    """
    dropped: set[int] = set()
    open_marks: list[tuple[int, str]] = []
    tokens = [(match.start(), match.group()) for match in _BRACES.finditer(text)]
    for index, (_, mark) in enumerate(tokens):
        if mark in _CLOSES:
            open_marks.append((index, mark))
            if len(open_marks) > max_depth:
                dropped.add(index)
            continue
        wanted = "{{" if mark == "}}" else "[["
        while open_marks and open_marks[-1][1] != wanted and any(kind == wanted for _, kind in open_marks[-8:]):
            dropped.add(open_marks.pop()[0])
        if open_marks and open_marks[-1][1] == wanted:
            opening, _ = open_marks.pop()
            if opening in dropped:
                dropped.add(index)
        else:
            dropped.add(index)
    dropped.update(index for index, _ in open_marks)
    if not dropped:
        return text
    pieces, position = [], 0
    for index in sorted(dropped):
        start, mark = tokens[index]
        pieces.append(text[position:start])
        position = start + len(mark)
    pieces.append(text[position:])
    return "".join(pieces)


_CLOSES = {"{{": "}}", "[[": "]]"}
_BRACES = re.compile(r"\{\{|\}\}|\[\[|\]\]")
