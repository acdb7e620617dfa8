"""One page in two languages: every sentence is said in both, no translation is left over, and the numbers are equal."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from corpus.filters import STATISTICS
from corpus.report import html, tables
from corpus.report.distributions import BUCKETS, Group
from corpus.report.html import SENTENCES, render_html
from corpus.report.language import CHINESE, ENGLISH, Language
from corpus.report.metadata import TOP_ROWS, BuildMetadata, gather
from corpus.report.mixture import REST, SOURCE
from corpus.report.mixture import Group as Part
from corpus.report.summary import BREACHES
from tests.corpus.retune.conftest import built, inputs  # noqa: F401  (fixtures)
from tests.html_page import VOID, Page

AS_IT_IS = {"", "min", "max", "1 %", "99 %"}  # headings that are keys of a recipe, or numbers
FIELD = re.compile(r"\{(\w+)\}")
NUMBER = re.compile(r"\d[\d,.]*")
ENGLISH_WORDS = re.compile(r"[A-Za-z]{2,}(?:,? [a-z]{2,}){2,}")
FIGURES = re.compile(r"(?:[\d\s.,<>%·()−+-]|min|max|[kMGTP]?B\b|文海 wenhai|English|中文)*")
EXTRA = {
    "characters_read": 900,
    "characters_removed.menu": 90,
    "lines_removed.menu": 9,
    "edited.boilerplate.editor": 5,
    "goes_on": 2,
    "meta_left_out": 3,
    "wikitext.expanded": 4,
    "wikitext.left_out": 2,
    "wikitext.left_out.infobox": 2,
}
DETAIL = "casino pages; where lines.num_lines >= 3 and blocks.genre is verse or code"
NAMES = ("A to B", "qa", "(none)")  # sources, as data


class Asked(dict[str, str]):
    """Sentences that remember which were asked for."""

    def __init__(self) -> None:
        super().__init__(CHINESE.sentences)
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: str) -> str:  # type: ignore[override]
        self.keys_asked.add(key)
        return super().get(key, default)


class Texts(HTMLParser):
    """The texts and labels of a page outside code, scripts and documents, each with the class of its element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._open: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.found += [("label", values["aria-label"] or "")] if "aria-label" in values else []
        self._open += [] if tag in VOID else [(tag, values.get("class") or "")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip() and not {"code", "script", "style"} & {tag for tag, _ in self._open}:
            if not any(kind == "text" for _, kind in self._open):
                self.found.append((self._open[-1][1], data.strip()))


def part(kind: str, name: str) -> Part:
    return Part(kind, name, 0, 10, 1000, 8, 12, 1200)


@pytest.fixture(scope="module")
def full(out: str) -> BuildMetadata:
    """A build that has every table of the report, and every word that one can hold."""
    facts = gather(out)
    first, *steps = facts.funnel.steps
    steps = [replace(first, counts=replace(first.counts, extra=EXTRA)), *steps]
    breaches = [breach.format_map(dict.fromkeys(FIELD.findall(breach), "text")) for breach in BREACHES]
    one, *others = facts.measured.distributions
    measured = replace(
        facts.measured,
        distributions=[replace(one, detail=DETAIL), *others],
        scores=[Group(name, 2, 1) for name in BUCKETS],
        labels={"blocks.genre": [Group("verse", 2, 1), Group("not measured", 1, 1)]},
    )
    named = [Group(name, 2, 1) for name in NAMES]
    domains = [Group(f"site{at}.example", 1, 1) for at in range(TOP_ROWS)]
    return replace(
        facts,
        funnel=replace(facts.funnel, steps=tuple(steps), breaches=tuple(breaches)),
        reasons=[replace(facts.reasons[0], limit=f"min 80 ({DETAIL}); max 5"), *facts.reasons],
        measured=measured,
        scored={"0.3-0.4": facts.samples[:2]},
        origins={**facts.origins, "source": named, "domain": domains},
        documents_read=7,
        clusters=[("5 to 9", 2, 12)],
        clusters_read=(3, 9),
        earlier=[("old", "build/old", 2)],
        items=[("ceval 7", 120, True)],
        mixture=[
            *(part(SOURCE, name) for name in (*NAMES[:2], REST)),
            *(part("dedup.cluster_size", name) for name in ("below 2", "2 to 5", "5 +", "not measured")),
            part("dedup.cluster_size", "other documents"),
        ],
    )


@pytest.fixture(scope="module", params=["full", "real"])
def facts(request: pytest.FixtureRequest, full: BuildMetadata, built: Path) -> BuildMetadata:  # noqa: F811
    return full if request.param == "full" else gather(str(built))


def both(facts: BuildMetadata) -> Iterator[tuple[str, str, str]]:
    """Class, English and Chinese of each text; the pages are alike element by element."""
    english, chinese = (Texts(render_html(facts, say)).found for say in (ENGLISH, CHINESE))
    assert [kind for kind, _ in english] == [kind for kind, _ in chinese]
    return ((kind, one, other) for (kind, one), (_, other) in zip(english, chinese, strict=True))


def data_of(facts: BuildMetadata) -> set[str]:
    """What stands on both pages as it is."""
    groups = (one.name for some in (*facts.origins.values(), *facts.measured.labels.values()) for one in some)
    failures = (value for one in facts.failures for value in (one.rule, one.place, one.detail))
    mixture = (value for one in facts.mixture for value in (one.kind, one.name))
    more = (value for name, folder, _ in facts.earlier for value in (name, folder))
    sliders = (f"{one.name} {bound}" for one in facts.measured.distributions for bound in ("min", "max"))
    templates = (f"{{{{{key.rpartition('.')[2]}}}}}" for key in EXTRA)
    return {
        *(one.stage for one in facts.reasons),
        *(key.rpartition(".")[2] for key in EXTRA),
        *(name for name, *_ in facts.items),
        *(step.stage for step in facts.funnel.steps),
        *groups, *failures, *mixture, *more, *sliders, *templates,
    }  # fmt: skip


def test_the_chinese_page_holds_no_english(facts: BuildMetadata) -> None:
    data = data_of(facts)
    for _, english, chinese in both(facts):
        if english == chinese:
            assert english in data or FIGURES.fullmatch(english), english
        else:
            assert not ENGLISH_WORDS.search(chinese.replace("casino pages", "")), chinese


def test_the_two_pages_have_the_same_numbers(facts: BuildMetadata) -> None:
    pages = [render_html(facts, say) for say in (ENGLISH, CHINESE)]
    for kind, english, chinese in both(facts):
        if "unit" not in kind:  # there stand descriptions
            assert sorted(NUMBER.findall(english)) == sorted(NUMBER.findall(chinese)), (english, chinese)
    data = [json.loads(page.partition('id="data">')[2].partition("</script>")[0]) for page in pages]
    sentences = [one.pop("sentences") for one in data]
    assert data[0] == data[1] and sentences[0] == SENTENCES
    assert sentences[1] == {key: CHINESE.sentences[sentence] for key, sentence in SENTENCES.items()}
    scripts = [re.findall("<script>(.*)</script>", page, re.DOTALL) for page in pages]
    assert scripts[0] == scripts[1] and len(scripts[0]) == 1


def test_each_page_says_its_language_and_leads_to_the_other(full: BuildMetadata) -> None:
    for say, other in ((ENGLISH, CHINESE), (CHINESE, ENGLISH)):
        page = Page(render_html(full, say))
        page.check(num_scripts=2)
        assert ("html", {"lang": say.tag}) in page.tags
        (link,) = (values for name, values in page.tags if name == "a" and "hreflang" in values)
        assert (link["href"], link["hreflang"]) == (other.page, other.tag)


def test_every_sentence_has_its_translation_and_every_translation_its_sentence(full: BuildMetadata) -> None:
    asked = Asked()
    render_html(full, Language("zh-CN", "中文", "report.zh.html", "", asked))
    called = (
        node.args[0]
        for module in (html, tables)
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say"
    )
    written = {argument.value for argument in called if isinstance(argument, ast.Constant)}
    assert not written - asked.keys_asked, "the build above shows every sentence"
    described = {text for key in STATISTICS for text in tables.describe_statistic(key)}
    said = asked.keys_asked | described
    assert (said - AS_IT_IS - set(CHINESE.sentences), set(CHINESE.sentences) - said) == (set(), set())


@pytest.mark.parametrize("statistic", STATISTICS)
def test_every_statistic_is_described_in_chinese(statistic: str) -> None:
    for english in tables.describe_statistic(statistic):
        assert re.search("[一-鿿]", CHINESE(english)) and not ENGLISH_WORDS.search(CHINESE(english))


def test_both_languages_have_the_same_fields() -> None:
    for english, chinese in CHINESE.sentences.items():
        assert sorted(FIELD.findall(english)) == sorted(FIELD.findall(chinese)), english
        assert chinese and "{" not in FIELD.sub("", chinese)


def test_the_script_says_the_sentences_that_the_page_has() -> None:
    script = Path(str(html.__file__)).with_name("page.js").read_text("utf-8")
    said = {key for call in re.findall(r"\bsay\((.*)", script) for key in re.findall(r'"(\w+)"', call)}
    assert said == SENTENCES.keys()
    for sentence in SENTENCES.values():
        assert all(re.search(rf"\b{field}\b", script) for field in FIELD.findall(sentence))


def test_names_that_look_like_sentences_stay(full: BuildMetadata) -> None:
    page = render_html(full, CHINESE)
    assert page.count("<td>A to B</td>") == 2 and "<td>2 到 5</td>" in page and "（其余）" in page
    assert "当 lines.num_lines &gt;= 3 且 blocks.genre 为 verse 或 code" in page
    assert CHINESE.condition("pages where people talk and sing") == "pages where people talk and sing"
