"""The article of a page that carries its text in a script: JSON of Next, Nuxt, Vue and JSON-LD, or WeChat's literals.

Scripts of JSON and assignments of JSON are parsed; from other code the string literals under an article's usual keys
are taken. The article is the string, or the list of paragraphs, under such a key that holds the most Han characters,
if it has sentences and at least half of all Han characters that stand in sentences, and is no entry of a list of titled
entries: so feeds, comments, settings and tables of translations give nothing. Work is bounded by bytes.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

MAX_SCRIPT_BYTES = 8_000_000  # a longer one is not looked at
MAX_SCRIPTS_CHARS = 16_000_000  # of a page, in all
MAX_FAILURES = 8  # assignments of a script that are no JSON after all
MIN_HAN = 120  # what is shorter is a teaser, a notice or a setting
MIN_SENTENCES = 3
MIN_SHARE = 0.5  # of the Han characters in sentences

_SCRIPT = re.compile(rb"<script\b([^>]*)>", re.IGNORECASE)
_SCRIPT_END = re.compile(rb"</script", re.IGNORECASE)
_ASSIGNED = re.compile(r"""(?<![=!<>])=\s*(?=[\[{]\s*["\[{])""")
_UNDEFINED = re.compile(r"(?<=[:,\[])undefined(?=[,}\]])")
_KEY = re.compile(
    r"(?i:(?:article|post|html|rich)?_?(?:content|body|text|html)s?(?:_?html|_noencode)?"
    r"|__html|paragraphs|blocks|detail|markdown|value|data|desc|description)"
)
_TITLE_KEYS = ("title", "headline", "articleTitle", "subject")
_BLOCK_KEYS = ("text", "content", "value", "insert", "html", "data", "children")
_OWNED = frozenset("title headline url link author user nickname avatar cover uid userName".split())
_STRING = r"""("(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')"""
_LITERAL = re.compile(rf"""\b({_KEY.pattern}|(?:msg_)?title)["']?\s*[:=]\s*(?:JsDecode\(\s*)?{_STRING}""", re.DOTALL)
_PARSED = re.compile(rf"JSON\.parse\(\s*{_STRING}", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NOT_HAN = re.compile(r"<[^<>]*>|[^\u3400-\u4dbf\u4e00-\u9fff]+")
_MARKUP = re.compile(r"</?(?:p|div|br|section|span|h[1-6]|ul|li|strong|img|figure)\b[^<>]*>", re.IGNORECASE)

Found = tuple[str, str, str | None]  # key, text, title beside or above: None for an entry of a list of titled entries


def article_html(page: bytes) -> bytes | None:
    """The article that the scripts of a page (UTF-8) hold, as HTML with its title as h1; None if they hold none.

    >>> body = "清晨，木匠沿着河岸慢慢走。他数着对岸亮起的灯！没有人觉得奇怪？" * 5
    >>> article_html(f'<script>window.x = {{"title": "河", "content": "{body}"}};</script>'.encode()).decode()[:24]
    '<h1>河</h1>\\n<p>清晨，木匠沿着河岸慢'
    """
    best, most, left = None, (MIN_HAN, False), MAX_SCRIPTS_CHARS
    heads: dict[str, int] = {}  # the same text as HTML and as plain text, or its summary, counts once
    for start in _SCRIPT.finditer(page):
        end = _SCRIPT_END.search(page, start.end())
        if end is None or left < 0:
            break
        if not MIN_HAN < end.start() - start.end() <= MAX_SCRIPT_BYTES:
            continue
        script = page[start.end() : end.start()].decode("utf-8", "replace")
        left -= len(script)
        for key, text, title in _texts(script.strip(), b"json" in start[1].lower()):
            if not re.search("[。！？；]", text):
                continue
            han = _NOT_HAN.sub("", text)
            heads[han[:30]] = max(heads.get(han[:30], 0), len(han))
            rank = len(han), "<" in text  # of two alike the one that has paragraphs
            if rank >= most and title is not None and _KEY.fullmatch(key):
                if len(re.findall("[。！？]", text)) >= MIN_SENTENCES:
                    best, most = (title, text), rank
    if best is None or most[0] < MIN_SHARE * sum(heads.values()):
        return None
    headline = html.escape(html.unescape(best[0]).strip())
    return (f"<h1>{headline}</h1>\n" * bool(headline) + _as_html(best[1])).encode("utf-8", "replace")


def _is_short(text: str) -> bool:
    """Whether code cannot hold MIN_HAN Han characters, of three bytes or escaped."""
    return len(text.encode("utf-8", "replace")) - len(text) < 2 * MIN_HAN and text.count("\\u") < MIN_HAN


def _parsed(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value at `start` and where it ends; None and `start` if there is none, or one too deep."""
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start


def _texts(script: str, is_json: bool) -> Iterator[Found]:
    """The strings of a script's JSON, and of what is no JSON the literals under keys of articles."""
    script = unquote(script) if script[:3] == "%7B" else script
    if _is_short(script):
        return
    script = _UNDEFINED.sub("null", script)
    code, position, failures = [], 0, 0
    for start in [0] if is_json else (match.end() for match in _ASSIGNED.finditer(script)):
        if start < position:
            continue
        value, end = _parsed(script, start)
        if end > start:
            code.append(script[position:start])
            position = end
            yield from _strings(value)
        elif (failures := failures + 1) == MAX_FAILURES:
            break
    for piece in [] if is_json else [*code, script[position:]]:
        for parsed in _PARSED.finditer(piece):
            yield from _texts(_unescaped(parsed[1]), True)
        title = ""
        for key, literal in [] if _is_short(piece) else _LITERAL.findall(piece):
            if key.endswith("title"):
                title = _unescaped(literal) or title
            else:
                yield key, _unescaped(literal), title


def _strings(value: Any) -> Iterator[Found]:
    """All strings of a JSON value; a list of paragraphs under a key of articles is one string."""
    stack: list[tuple[str, Any, str | None]] = [("", value, "")]
    while stack:
        key, value, title = stack.pop()
        if isinstance(value, str):
            inner = _parsed(value)[0] if value[:1] in ("[", "{") and _KEY.fullmatch(key) else None
            if inner is None:
                yield key, value, title
            else:  # an editor's blocks
                stack.append((key, inner, title))
        elif isinstance(value, dict):
            own = next((value[name] for name in _TITLE_KEYS if isinstance(value.get(name), str)), title)
            stack += [(name, item, None if title is None else own) for name, item in value.items()]
        elif isinstance(value, list):
            entries = [isinstance(item, dict) and not _OWNED.isdisjoint(item) for item in value]
            lines = [_block(block) for block in value] if _KEY.fullmatch(key) else []
            if any(lines) and not any(owned and line for owned, line in zip(entries, lines, strict=True)):
                marked = any(map(_MARKUP.search, lines))  # paragraphs, or an editor's blocks
                yield key, "".join(f"<p>{line}</p>" for line in lines) if marked else "\n".join(lines), title
            else:
                stack += [(key, item, None if sum(entries) > 1 and key != "@graph" else title) for item in value]


def _block(block: Any, depth: int = 6) -> str:
    if isinstance(block, dict) and depth > 0:
        return next((text for key in _BLOCK_KEYS if (text := _block(block.get(key), depth - 1))), "")
    if isinstance(block, list) and depth > 0:
        return "".join(_block(item, depth - 1) for item in block)
    return block if isinstance(block, str) and not block.startswith(("http", "//")) else ""


def _unescaped(literal: str) -> str:
    """A JavaScript string literal as text."""

    def character(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2]
        return chr(int(code, 16)) if code else {"n": "\n", "r": "", "t": "\t"}.get(escape[3], escape[3])

    text = _ESCAPE.sub(character, literal[1:-1])
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a pair of \u escapes is one character


def _as_html(text: str) -> str:
    if _MARKUP.search(text) or _MARKUP.search(html.unescape(text)):
        return text if _MARKUP.search(text) else html.unescape(text)
    return "\n".join(f"<p>{html.escape(line.strip())}</p>" for line in text.splitlines() if line.strip())
