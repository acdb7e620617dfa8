"""How Chinese a page and a host are, and which links to follow first because of it.

Everything is a share between 0 and 1, made of counts and a prior that weighs as much as a few observations: no model,
nothing to train, and a few pages suffice to overrule a wrong guess.
"""

from __future__ import annotations

from contextlib import suppress

from corpus.crawl.pages.page import Page, PageLink
from corpus.crawl.urls.url import name_of

# Share of Chinese bytes in the text from which on a page is wholly Chinese. Not 1: code, numbers and names in Latin
# letters stand in Chinese pages; prose has 0.9 and more, technical articles begin at 0.55.
WHOLLY_CHINESE = 0.5
# A page that says almost nothing is judged by what it declares; after so many bytes of text what it says weighs more.
PRIOR_TEXT_BYTES = 300
# A host's name weighs as much as so many pages: a .cn host whose first pages are English is down to half after four.
PRIOR_PAGES = 4

# What the top-level domain of a host makes us expect: nearly all of .cn is Chinese, and so are places where Chinese is
# written and domains written in it; .sg is one part in a few; other hosts were found through links on Chinese pages,
# which makes them likelier to be Chinese than the web at large.
PRIORS = {"cn": 0.9, "tw": 0.9, "hk": 0.9, "mo": 0.9, "sg": 0.4}
PRIOR_ELSEWHERE = 0.3
# What a page's declarations make us expect of a page without text.
PRIOR_DECLARED, PRIOR_UNDECLARED, PRIOR_OTHER = 0.9, 0.3, 0.1
CHINESE_CODECS = frozenset(("gb18030", "gbk", "gb2312", "big5", "big5hkscs", "cp950"))

# Of a link's priority. The page that holds the link and the host it leads to say most and know it equally well; the
# link's own text is a few characters; around an image or a page number it is none, and the page stands in.
PAGE_WEIGHT, HOST_WEIGHT, TEXT_WEIGHT = 0.4, 0.4, 0.2
# A page ten links from a seed comes half as soon: nearer pages are what sites think more of (PageRank falls with
# depth).
HALVING_DEPTH = 10
# A site that says a page is in another language is believed, but for the few that copy the tag everywhere.
OTHER_LANGUAGE = 0.1


def page_evidence(page: Page) -> float:
    """How Chinese a page is: its text, and what it declares as long as there is little text."""
    share = min(1.0, page.chinese_bytes / (WHOLLY_CHINESE * page.text_bytes)) if page.text_bytes else 0.0
    declared = is_chinese(page.language) if page.language else page.encoding in CHINESE_CODECS
    prior = PRIOR_DECLARED if declared else PRIOR_OTHER if page.language else PRIOR_UNDECLARED
    return (prior * PRIOR_TEXT_BYTES + share * page.text_bytes) / (PRIOR_TEXT_BYTES + page.text_bytes)


def host_evidence(chinese_bytes: int, text_bytes: int, pages: int, host: str) -> float:
    """How Chinese a host is, by its pages so far and its name; pages that are not Chinese cost it.

    >>> round(host_evidence(0, 0, 0, "news.example.cn"), 2), round(host_evidence(0, 9_000, 4, "news.example.cn"), 2)
    (0.9, 0.45)
    """
    share = min(1.0, chinese_bytes / (WHOLLY_CHINESE * text_bytes)) if text_bytes else 0.0
    return (host_prior(host) * PRIOR_PAGES + share * pages) / (PRIOR_PAGES + pages)


def host_prior(host: str) -> float:
    """What a host's name makes us expect.

    >>> host_prior("xn--fsqu00a.xn--fiqs8s"), host_prior("example.com:8080")
    (0.9, 0.3)
    """
    suffix = name_of(host).rpartition(".")[2]
    with suppress(UnicodeError):
        if suffix.startswith("xn--") and _share_of_han(suffix[4:].encode("ascii").decode("punycode")) == 1.0:
            return PRIORS["cn"]
    return PRIORS.get(suffix, PRIOR_ELSEWHERE)


def link_priority(link: PageLink, page: float, host: float, depth: int) -> float:
    """How soon to follow a link, 0..1.

    Args:
        link: as the page wrote it.
        page: evidence of the page that holds it.
        host: evidence of the host that it leads to; `host_prior` of one not seen yet.
        depth: links from a seed, of the page it leads to.
    """
    text = _share_of_han(link.text)
    priority = PAGE_WEIGHT * page + HOST_WEIGHT * host + TEXT_WEIGHT * (page if text is None else text)
    if link.hreflang and not is_chinese(link.hreflang):
        priority *= OTHER_LANGUAGE
    return priority * HALVING_DEPTH / (HALVING_DEPTH + depth)


def is_chinese(language: str) -> bool:
    """Whether a language tag (BCP 47, or as pages misspell it) is one of Chinese.

    >>> is_chinese("zh-Hant-TW"), is_chinese("ZH_cn"), is_chinese("cn"), is_chinese("ja"), is_chinese("x-default")
    (True, True, True, False, True)
    """
    first = language.strip().lower().replace("_", "-").split("-")[0]
    return first in ("zh", "zho", "chi", "cmn", "yue", "wuu", "nan", "hak", "lzh", "cn", "tw", "x")


def _share_of_han(text: str) -> float | None:
    """Share of the letters; None without any."""
    letters = [character for character in text if character.isalpha()]
    return sum("\u3400" <= character <= "\u9fff" for character in letters) / len(letters) if letters else None
