"""What a mixture made of a corpus: its sources and buckets, what each is of the text and of the mixture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.cells import cell_len

from corpus.document import read_table
from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Folder
from corpus.report.summary import MIXTURE_STAGE, folders, share, size
from corpus.safe import cut_middle, snippet

SOURCE = "source"
TOP_GROUPS = 20  # of sources, by bytes; the rest is one line
MAX_HELD_SOURCES = 1 << 17  # while adding up, some 60 MB: a source can be a single file
NAME_COLUMNS = 25
REST, ALL = "(others)", "all"
SUMS = ("documents", "text_bytes", "chosen", "copies", "copied_bytes")
HEADINGS = ("documents", "left out", "size", "times", "share", "share mixed")


@dataclass(frozen=True)
class Group:
    """A source, or a bucket of a statistic: its documents, those taken at least once, their copies, bytes of text."""

    kind: str  # "source", or the statistic
    name: str
    place: int
    documents: int
    text_bytes: int
    chosen: int
    copies: int
    copied_bytes: int

    @property
    def times(self) -> float:
        """How often a byte of it is taken: its effective epochs."""
        return self.copied_bytes / self.text_bytes if self.text_bytes else 0.0


def read_groups(folder: Folder) -> list[Group]:
    """The groups of a mixture: sources, the largest first, then the buckets of each statistic in their order.

    Of more than `MAX_HELD_SOURCES` sources the smaller ones become `REST`, the last of them; sums stay exact.
    """
    sums: dict[tuple[str, str, int], list[int]] = {}
    for file in folder.files("groups"):
        for row in read_table(storage.fetch(file.url)).to_pylist():
            kind, name, place, *values = row.values()
            sums[kind, name, place] = [
                a + b for a, b in zip(sums.get((kind, name, place), [0] * 5), values, strict=True)
            ]
        if len(sums) > MAX_HELD_SOURCES:
            sums = _without_small(sums)
    kinds = list(dict.fromkeys(kind for kind, _, _ in sums))
    groups = [Group(*key, *values) for key, values in sums.items()]
    return sorted(
        groups, key=lambda one: (kinds.index(one.kind), one.place, one.name == REST, -one.text_bytes, one.name)
    )


def _without_small(sums: dict[tuple[str, str, int], list[int]]) -> dict[tuple[str, str, int], list[int]]:
    """The larger half of the sources by bytes, the others as one; buckets as they are."""
    rest = (SOURCE, REST, 0)
    sources = sorted((key for key in sums if key[0] == SOURCE and key != rest), key=lambda key: -sums[key][1])
    small = {*sources[len(sources) // 2 :], rest} & sums.keys()
    merged = [sum(column) for column in zip(*(sums[key] for key in small), strict=True)]
    return {key: values for key, values in sums.items() if key not in small} | {rest: merged}


def top_groups(groups: Sequence[Group]) -> list[Group]:
    """The same with at most `TOP_GROUPS` sources and one line for the rest."""
    sources = [one for one in groups if one.kind == SOURCE]
    if len(sources) <= TOP_GROUPS:
        return list(groups)
    rest = _sum(SOURCE, REST, sources[TOP_GROUPS - 1 :])
    return [*sources[: TOP_GROUPS - 1], rest, *groups[len(sources) :]]


def cells(group: Group, whole: Group) -> tuple[str, ...]:
    """A group's numbers in words, in the order of `HEADINGS`; `whole` is the sum of its kind."""
    return (
        f"{group.documents:,}",
        f"{group.documents - group.chosen:,}",
        size(group.text_bytes),
        f"{group.times:.3f}",
        share(group.text_bytes, whole.text_bytes),
        share(group.copied_bytes, whole.copied_bytes),
    )


def wholes(groups: Sequence[Group]) -> dict[str, Group]:
    """kind -> the sum of its groups; every document is in one group of each kind."""
    kinds = dict.fromkeys(one.kind for one in groups)
    return {kind: _sum(kind, ALL, [one for one in groups if one.kind == kind]) for kind in kinds}


def mixture(out: str) -> list[Group]:
    """The groups of the mixture below `out`.

    Raises:
        WenhaiError: it has none.
    """
    stages = folders(out)
    if MIXTURE_STAGE not in stages:
        raise WenhaiError(f"{out}: has no mixture. Give its recipe a [mixture] and run `python -m corpus run` again.")
    return read_groups(stages[MIXTURE_STAGE])


def render(groups: Sequence[Group]) -> str:
    """The mixture as tables of at most 98 columns."""
    return "\n".join(_lines(groups))


def as_json(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The groups as JSON values."""
    return [asdict(one) | {"times": one.times} for one in groups]


def _lines(groups: Sequence[Group]) -> Iterator[str]:
    shown = top_groups(groups)
    for kind, whole in wholes(groups).items():
        yield _line(kind, HEADINGS)
        for one in [*(one for one in shown if one.kind == kind), *([whole] if kind == SOURCE else [])]:
            yield _line(cut_middle(snippet(one.name), NAME_COLUMNS), cells(one, whole))


def _line(name: str, values: Sequence[str]) -> str:
    return name + " " * (NAME_COLUMNS + 1 - cell_len(name)) + "".join(f"{value:>12}" for value in values)


def _sum(kind: str, name: str, groups: Sequence[Group]) -> Group:
    return Group(kind, name, 0, *(sum(getattr(one, column) for one in groups) for column in SUMS))
