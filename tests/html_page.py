"""Takes a page of HTML apart, for the tests of what is drawn."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "input"}


class Page(HTMLParser):
    """Collects tags, attributes and text; every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def check(self, num_scripts: int = 0) -> None:
        """It asks for nothing, and runs nothing but scripts of ours."""
        names = [name for name, _ in self.tags]
        assert not {"img", "link", "iframe", "object", "form", "base"} & set(names)
        assert names.count("script") == num_scripts
        for _, attributes in self.tags:
            assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
            href = attributes.get("href") or "#"
            assert href.startswith("#") or href in ("report.html", "report.zh.html")
