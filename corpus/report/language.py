"""The languages of the report: English stands in the code, Chinese in `zh.toml`, from each English sentence to its own.

A sentence with {fields} is looked up as it stands and filled in afterwards. One without a translation stays English;
tests let none be missing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

CONDITION = re.compile(r"\bwhere [\w.]+ (?:>=|<=|is) [^;)]*")  # as `corpus.filters.rules.conditions.text` makes it
JOINTS = re.compile(r"\bwhere\b|(?<= )(?:and|or|is)(?= )")


@dataclass(frozen=True)
class Language:
    """A language of the page; calling it says a sentence of the code in it.

    >>> CHINESE("Of {read} of {total} documents.", read="3", total="5")
    '基于 5 篇中的 3 篇。'
    """

    tag: str  # BCP 47
    name: str  # as its readers write it
    page: str
    space: str  # between sentences
    sentences: Mapping[str, str]

    def __call__(self, english: str, **fields: object) -> str:
        found = self.sentences.get(english, english)
        return found.format(**fields) if fields else found

    def join(self, *sentences: str) -> str:
        """Sentences as a paragraph; empty ones are left out."""
        return self.space.join(filter(None, sentences))

    def made(self, text: str, *templates: str) -> str:
        """A text made in English, told by the template that it fits; any other is data and stays.

        >>> CHINESE.made("50 to 99", "not measured", "{low} to {high}"), CHINESE.made("wiki", "not measured")
        ('50 到 99', 'wiki')
        """
        for template in templates:
            pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(template))
            if found := re.fullmatch(pattern, text):
                return self(template, **found.groupdict())
        return text

    def condition(self, detail: str) -> str:
        """A rule's detail with the words that join its condition in this language.

        >>> CHINESE.condition("min 80 where lines.num_lines >= 3 and blocks.genre is verse or code")
        'min 80 当 lines.num_lines >= 3 且 blocks.genre 为 verse 或 code'
        """
        return CONDITION.sub(lambda found: JOINTS.sub(lambda word: self(word[0]), found[0]), detail)


def _sentences(name: str) -> dict[str, str]:
    return tomllib.loads(resources.files("corpus.report").joinpath(name).read_text("utf-8"))


ENGLISH = Language("en", "English", "report.html", " ", {})
CHINESE = Language("zh-CN", "中文", "report.zh.html", "", _sentences("zh.toml"))
