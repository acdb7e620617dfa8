"""Wikitext (MediaWiki's markup) to text: what a reader of the page sees, one paragraph, heading or list item a line.

Tags, tables, references, galleries, files, categories and links to other languages go; of links the label stays, of
formulas the TeX, of templates those that carry text of the page (corpus/wikitext/templates.py); a dump does not hold
what the others would show, and they are left out and counted by name. Tables go whole, because a row of numbers and
flags without its columns is no prose. Sections at the end that only list references and links are cut.

Passes that are linear by construction do most of it; mwparserfromhell gets what is left, templates and nested links,
with every brace in a pair.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import mwparserfromhell
from mwparserfromhell.nodes import Argument, ExternalLink, HTMLEntity, Template, Text, Wikilink

from corpus.wikitext import syntax
from corpus.wikitext.conversion import VARIANTS, convert, script_of
from corpus.wikitext.templates import BLOCKS, COUNTRIES, HEADERS, LITERAL, SHOWN, labels, normal_name

__all__ = ["VARIANTS", "WikiText", "to_text"]

MAX_DEPTH = 20  # of templates and links in each other; the parser's own bound is 40
MAX_NAME_CHARS = 60  # of a template, where it is counted
MAX_REFERENCE_CHARS = 200  # a line of a section of references and links that is longer is prose

LAST_SECTIONS = frozenset(
    "参考文献 參考文獻 参考资料 參考資料 参考 參考 参考来源 參考來源 参考书目 參考書目 资料来源 資料來源 来源 來源 文献 文獻 引用 引注 引註 "
    "注释 註釋 注釋 注解 註解 附注 附註 备注 備註 脚注 腳註 注脚 註腳 注 註 参考注释 外部链接 外部連結 外部鏈接 外部链结 链接 連結 "
    "相关条目 相關條目 参见 參見 参看 參看 另见 另見 延伸阅读 延伸閱讀 扩展阅读 進階閱讀 相关链接 相關連結 相关书目 參閱 参阅".split()
)
_HIDDEN_SPACES = frozenset(
    "file image media category 文件 檔案 档案 图像 圖像 图片 圖片 媒体 媒體 媒體檔案 分类 分類 カテゴリ ファイル".split()
)
_PROJECTS = frozenset(
    "w wikt wiktionary s wikisource q wikiquote b wikibooks v voy n commons c d m meta species".split()
)
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,8})*|simple")
_EXTERNAL_LINK = re.compile(
    r"\[(?:https?:|ftp:|mailto:)?//[^\s\[\]<>\"]{1,2000}([^\[\]\n]{0,1000})\]"
    r"|\[mailto:[^\s\[\]]{1,500}([^\[\]\n]{0,1000})\]"
)
_SIMPLE_LINK = re.compile(r"\[\[([^\[\]{}|=\n]{1,500})(?:\|([^\[\]{}|=\n]{0,500}))?\]\]")
_SIMPLE_TEMPLATE = re.compile(r"(?<!\{)\{\{([^{}\[\]|<>#]{1,100})(?:\|[^{}\[\]]*)?\}\}(?!\})")
_STYLE = re.compile(r"'{2,5}")
_MAGIC = re.compile(r"(?:formatnum|lc|uc|ucfirst|lcfirst)\s*:.*", re.DOTALL)
_EMPTY_BRACKETS = re.compile(
    r"(?:（|(?<![A-Za-z0-9_)\]])\()[ \t\u00a0\u3000，,、；;：:]{0,20}[）)]"
)  # not those of f()
_BESIDE_BRACKET = re.compile(r"(?<=（)[ ，、；]{1,20}|[ ，、；]{1,20}(?=[）。！？])")  # what stood there was a template
_SEPARATORS = re.compile(r"([，、；])(?:[ \u00a0]{0,4}[，、；]){1,20}")
_SPECIAL = HEADERS | LITERAL.keys() | SHOWN.keys() | COUNTRIES.keys() | {"!"}
_LEFT_OVER = re.compile(r"\{{2,}|\}{2,}|\[{2,}|\]{2,}")
_BULLET_CHARS = syntax.LIST + "• 0123456789."
_SPACES = re.compile(r"[ \t\u00a0]+")


@dataclass(frozen=True, slots=True)
class WikiText:
    """The text of a page, and what a Wikisource header says of the work; the templates of the text without its tables
    and references, by whether they were expanded, the others by name."""

    text: str
    title: str | None = None
    author: str | None = None
    num_expanded: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Page:
    """What is found while the nodes of a page become text."""

    variant: str
    header: dict[str, str] = field(default_factory=dict)  # of Wikisource
    expanded: Counter[str] = field(default_factory=Counter)  # templates by name
    left_out: Counter[str] = field(default_factory=Counter)  # and all that came to the parser


def to_text(source: str, variant: str = "auto") -> WikiText:
    """The text of a page's wikitext; `variant` is one of VARIANTS, or `auto` for the page's own script.

    >>> to_text("'''孔子'''（{{lang-en|Confucius}}），名[[丘]]。<ref>书</ref>\\n== 参考文献 ==\\n* [https://example.org 甲]").text
    '孔子（Confucius），名丘。'
    """
    protected = syntax.Protected()
    text = syntax.without_tags(syntax.CONTROL.sub("", source), protected)
    variant = script_of(text) if variant == "auto" else variant
    if "-{" in text:
        text = convert(text, variant)
    text = syntax.mark_lines(syntax.without_tables(_STYLE.sub("", text)))
    text = _EXTERNAL_LINK.sub(lambda link: (link.group(1) or link.group(2) or "").strip(), text)
    text = _SIMPLE_LINK.sub(lambda link: _link_label(link.group(1), link.group(2)), text)
    page = _Page(variant)
    text = _SIMPLE_TEMPLATE.sub(lambda template: _unless_dropped(template, page), text)
    if "{{" in text or "[[" in text:
        text = _without_single_brackets(syntax.balance_braces(text, MAX_DEPTH))
        code = mwparserfromhell.parse(text, skip_style_tags=True)
        text = _flat(code, page)
        page.left_out.update(normal_name(str(template.name)) for template in code.ifilter_templates())
    text = _LEFT_OVER.sub("", text).replace(syntax.BRACKET, "[")
    text = _lines(protected.restore(_without_gaps(html.unescape(text))))
    title, author = _clean(page.header.get("title")), _clean(page.header.get("author"))
    left_out = Counter[str]()
    for name, count in (page.left_out - page.expanded).items():
        left_out[name.partition(":")[0][:MAX_NAME_CHARS]] += count  # `defaultsort:` of whatever
    return WikiText(text, title, author, page.expanded.total(), left_out)


def _without_single_brackets(text: str) -> str:
    """`[` alone hidden from the parser: it would look for the end of an external link behind each."""
    if "[" not in text:
        return text
    return text.replace("[[", "\0").replace("[", syntax.BRACKET).replace("\0", "[[")


def _flat(code: Any, page: _Page) -> str:
    """What a reader sees of parsed wikitext."""
    pieces: list[str] = []
    for node in code.nodes:
        if isinstance(node, Text):
            pieces.append(node.value)
        elif isinstance(node, Wikilink):
            label = None if node.text is None else _flat(node.text, page)
            pieces.append(_link_label(str(node.title), label))
        elif isinstance(node, Template):
            name = normal_name(str(node.name))
            shown = _shown(node, name, page)
            page.expanded[name] += shown is not None
            pieces.append(shown or "")
        elif isinstance(node, Argument):
            pieces.append("" if node.default is None else _flat(node.default, page))
        elif isinstance(node, (HTMLEntity, ExternalLink)):
            pieces.append(str(node))
        else:
            pieces.append(_flat(node.contents, page) if getattr(node, "contents", None) else "")
    return "".join(pieces)


def _shown(template: Template, name: str, page: _Page) -> str | None:
    """What a reader sees of a template, or None where that is not known."""
    if name in LITERAL:
        return LITERAL[name]
    if name in HEADERS and not page.header:
        for wanted in ("title", "author"):
            if template.has(wanted):
                page.header[wanted] = _flat(template.get(wanted).value, page).strip()
        return ""
    if name == "!" and not template.params:
        return "|"
    if name in COUNTRIES and str(template.name).strip().isupper():  # in lower case some are of languages: {{jpn|j=...}}
        return convert(COUNTRIES[name], page.variant)
    if name in SHOWN:
        parameters = {str(one.name).strip(): _flat(one.value, page).strip() for one in template.params}
        return SHOWN[name](parameters, page.variant) or None
    if _MAGIC.fullmatch(name):
        return _flat(template.name, page).partition(":")[2].strip()
    for wanted in labels(name) or ():
        if template.has(wanted) and (value := _flat(template.get(wanted).value, page).strip()):
            return f"\n{value}\n" if name in BLOCKS else value
    return None


def _unless_dropped(template: re.Match[str], page: _Page) -> str:
    """Nothing for a template without others in it that shows none of its text: most are citations."""
    name = normal_name(template.group(1))
    if name in _SPECIAL or labels(name) or _MAGIC.fullmatch(name):
        return template.group()
    page.left_out[name] += 1
    return ""


@lru_cache(maxsize=4096)
def _is_hidden_space(space: str) -> bool:
    return space.strip().casefold() in _HIDDEN_SPACES


def _link_label(target: str, label: str | None) -> str:
    """What a link shows; nothing for files, categories and the same page in another language."""
    space, colon, rest = target.partition(":")
    if colon and space.strip():
        if _is_hidden_space(space):
            return ""
        space = space.strip().lower()
        if label is None and space not in _PROJECTS and _LANGUAGE.fullmatch(space):
            return ""
        if label is None and space in _PROJECTS:
            return rest.rpartition(":")[2].strip()
    if label is not None and label.strip():
        return label.strip()
    target = target.strip().removeprefix(":")
    return target.strip("/") if target.startswith("/") and target.endswith("/") else target


def _without_gaps(text: str) -> str:
    """The text without the brackets and separators between which only templates stood that are gone."""
    text = _BESIDE_BRACKET.sub("", _SEPARATORS.sub(r"\1", text))
    return _EMPTY_BRACKETS.sub("", text)


def _lines(text: str) -> str:
    """Lines without marks and needless space; headings without a section and sections of references at the end out."""
    lines = []
    for raw in _SPACES.sub(" ", text).split("\n"):
        line = raw.strip(" \u3000")
        if not line.startswith(syntax.LIST) or any(map(str.isalnum, line.strip(_BULLET_CHARS))):
            lines.append(line)
    lines = _without_empty_sections([line for line in lines if line])
    return _drop_rule_marks("\n".join(line.removeprefix(syntax.LIST) for line in lines))


def _without_empty_sections(lines: list[str]) -> list[str]:
    """The lines without headings that have no text under them, and without references; from the last line back."""
    kept: list[str] = []
    end = len(lines)
    next_level = 0  # of the kept heading behind
    for index in range(len(lines) - 1, -1, -1):
        if not lines[index].startswith(syntax.HEADING):
            continue
        level, title, body = int(lines[index][1]), lines[index][2:].strip(), lines[index + 1 : end]
        end = index
        is_empty = not body and next_level <= level
        if not is_empty and not (title in LAST_SECTIONS and all(map(_is_reference, body))):
            kept += [*reversed(body), title]
            next_level = level
    return lines[:end] + kept[::-1]


def _drop_rule_marks(text: str) -> str:
    """The text without marks of conversion rules: templates may have brought halves of them together."""
    if "-{" not in text and "}-" not in text:
        return text
    kept = [""]
    for char in text:
        if kept[-1] + char in ("-{", "}-"):
            kept.pop()
        else:
            kept.append(char)
    return "".join(kept)


def _is_reference(line: str) -> bool:
    """Whether a line looks like an item of a list of references: marked as one, or short and no sentence."""
    return len(line) <= MAX_REFERENCE_CHARS and (line.startswith(syntax.LIST) or not line.endswith(("。", "！", "？")))


def _clean(text: str | None) -> str | None:
    return " ".join(html.unescape(text).replace(syntax.BRACKET, "[").split()) or None if text else None
