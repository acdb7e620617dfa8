"""Section [extract] of a recipe, and what extraction makes of a page."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field, field_validator

from corpus.engine.config import Strict


class ExtractConfig(Strict):
    """How pages become text, and what one page may cost."""

    backend: Literal["wenhai", "resiliparse", "trafilatura"] = "wenhai"
    """Who finds the article: this package, resiliparse's main content, or trafilatura (fast mode; install it first)."""
    max_page_bytes: int = Field(default=16_000_000, gt=0)
    """Pages with more bytes of HTML are refused (`too_long`)."""
    max_page_seconds: float = Field(default=20.0, gt=0)
    """A page that takes longer is given up, with its child process (`killed`)."""
    max_page_mb: int = Field(default=1024, ge=64)
    """Megabytes that the child process may grow to beyond its size at the start, before it is killed."""
    tables: Literal["tabs", "markdown", "drop"] = "tabs"
    """How tables of data come out: cells apart by tabs, as Markdown, or not at all (the rule `tables`)."""
    min_text_chars: int = Field(default=1, ge=0)
    """Articles with fewer characters count as empty."""

    wikitext_variant: Literal["auto", "zh-cn", "zh-sg", "zh-my", "zh-tw", "zh-hk", "zh-mo"] = "auto"
    """What `-{zh-cn:...; zh-tw:...}-` in a wiki's pages becomes; `auto`: zh-cn or zh-tw, as the page itself is
    written."""

    @field_validator("backend")
    @classmethod
    def _is_installed(cls, backend: str) -> str:
        if backend == "trafilatura" and importlib.util.find_spec("trafilatura") is None:
            raise ValueError("trafilatura is not installed. Install it: pip install 'wenhai[trafilatura]'")
        return backend


@dataclass(frozen=True, slots=True)
class Page:
    """The article of a page: `text` has one paragraph a line, `date` is ISO 8601 (YYYY-MM-DD)."""

    title: str | None
    date: str | None
    text: str
    author: str | None = None


class Article(NamedTuple):
    """The article of a page in UTF-8, how many characters the page has, and what went by each rule (lines.py).

    White space does not count, nor do the marks and numbers of lists. A backend that tells nothing of what it removes
    leaves both empty.
    """

    title: str | None
    date: str | None
    author: str | None
    text: bytes
    num_read: int = 0
    removed: dict[str, tuple[int, int]] = {}
    next_page: str | None = None  # the link of the page that the article goes on on, as the page has it
