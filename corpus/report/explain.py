"""Why a document was kept or dropped, for a person at a terminal: its history in a few lines.

document 0856944aa196efc850079dc881405cd7
  url        https://example.org/page?…
  text       the first characters, masked
  extract    read from pages.warc.gz as gb18030; ordinal 00001-00:7
  filter     dropped by repetition.top_2_gram_ratio: 0.31 > max 0.2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len

from corpus.report import ledger
from corpus.report.ledger import Event
from corpus.report.lookup import Document, find
from corpus.safe import plain, plain_url, snippet

ID_DIGITS = 12
STATISTICS_SHOWN = 12
EDITS_SHOWN = 8
TITLE_CHARS = 60
TEXT_COLUMNS = 100
IN_CHARACTERS = ("substrings.passage", "extract.")  # kinds whose count is of characters
OPERATORS = {"min": "<", "max": ">"}


def explain(out: str, key: str) -> str:
    """The histories of all documents that `key` (URL, id prefix, place or SHARD:ROW) names, as lines of text.

    Raises:
        WenhaiError: nothing has that name; the message says what to try.
    """
    blocks = [_block(out, document) for document in find(out, key)]
    heading = [f"{len(blocks)} documents have this name."] if len(blocks) > 1 else []
    return "\n\n".join([*heading, *blocks])


def explain_json(out: str, key: str) -> list[dict[str, Any]]:
    """The same as JSON values: one object a document, with `events` in order. Text and URLs are masked here too."""
    return [
        {
            "id": document.id,
            "source": snippet(document.source),
            "url": plain_url(document.url) if document.url else None,
            "title": snippet(document.title, TITLE_CHARS) if document.title else None,
            "ordinal": f"{document.shard}:{document.row}" if document.shard is not None else None,
            "snippet": _snippet(out, document),
            "events": [_masked(event) for event in _events(out, document)],
        }
        for document in find(out, key)
    ]


def verdict(values: Mapping[str, Any]) -> str:
    """What a rule found: `0.31 > max 0.20`, or the rule's own words.

    >>> verdict({"value": 0.3142, "threshold": 0.2, "bound": "max"})
    '0.314 > max 0.2'
    """
    value, threshold, bound = (values.get(name) for name in ("value", "threshold", "bound"))
    if value is None or threshold is None or bound not in OPERATORS:
        return plain(str(values["detail"])) if values.get("detail") else ""
    return f"{comparison(value, bound, threshold)} {aside(values.get('detail'))}".rstrip()


def aside(detail: str | None) -> str:
    """A condition as it goes on, another detail in brackets.

    >>> aside("where lines.num_lines >= 3"), aside("advertises a casino"), aside(None)
    ('where lines.num_lines >= 3', '(advertises a casino)', '')
    """
    shown = plain(str(detail or ""))
    return shown if not shown or shown.startswith("where ") else f"({shown})"


def comparison(value: float, bound: str, threshold: float) -> str:
    """How a value breaks a limit, with as many digits as it takes to see it.

    >>> comparison(0.3142, "max", 0.2), comparison(0.2001, "max", 0.2)
    ('0.314 > max 0.2', '0.2001 > max 0.2')
    """
    shown, limit = number(value), number(threshold)
    return f"{f'{value:.12g}' if shown == limit else shown} {OPERATORS[bound]} {bound} {limit}"


def number(value: float) -> str:
    """A number with three significant digits, whole where it is whole.

    >>> number(0.31415), number(12.0), number(123456.0), number(1e-9)
    ('0.314', '12', '123,456', '1e-09')
    """
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def _events(out: str, document: Document) -> Iterator[Event]:
    """The history, and behind what was measured what the quality model saw."""
    from corpus.report.model_view import scored

    for event in ledger.history(out, document):
        yield event
        if event.what == "measured" and event.stage == "filter" and (seen := scored(out, document, event)):
            yield seen


def _block(out: str, document: Document) -> str:
    lines = [f"document {document.id}"]
    for label, value in (
        ("url", plain_url(document.url) if document.url else ""),
        ("title", snippet(document.title, TITLE_CHARS) if document.title else ""),
        ("text", _snippet(out, document) or ""),
    ):
        if value:
            first, *rest = wrap_columns(value)
            lines.append(f"  {label:<10} {first}")
            lines.extend(f"  {'':<10} {line}" for line in rest)
    for event in _events(out, document):
        first, *rest = _sentences(event)
        lines.append(f"  {event.stage:<10} {first}")
        lines.extend(f"  {'':<10} {line}" for line in rest)
    return "\n".join(lines)


def wrap_columns(text: str, columns: int = TEXT_COLUMNS) -> list[str]:
    """Lines of at most `columns` terminal columns; Han and other wide characters take two.

    >>> wrap_columns("学而时习之，不亦说乎", 12)
    ['学而时习之，', '不亦说乎']
    """
    lines, used = [""], 0
    for char in text:
        wide = cell_len(char)
        if used + wide > columns:
            lines.append("")
            used = 0
        lines[-1] += char
        used += wide
    return lines


def _snippet(out: str, document: Document) -> str | None:
    if document.shard is None or document.row is None:
        return None
    text = next((text for _, _, text in ledger.read_texts(out, [(document.shard, document.row)])), None)
    return snippet(text) if text is not None else None


def _sentences(event: Event) -> Iterator[str]:
    values = event.values
    if event.what == "read":
        origin = snippet(values.get("place") or values["source"])
        encoding = f" as {plain(values['encoding'])}" if values.get("encoding") else ""
        yield f"read from {origin}{encoding}; ordinal {values['shard']}:{values['row']}"
    elif event.what == "edited":
        yield "edited: " + ", ".join(_edit(edit) for edit in values["edits"][:EDITS_SHOWN])
        if len(values["edits"]) > EDITS_SHOWN:
            yield f"  and {len(values['edits']) - EDITS_SHOWN} more"
    elif event.what == "measured":
        yield from _measurements(values)
    elif event.what == "scored":
        yield from _scores(values)
    elif event.what == "error":
        origin = snippet(values.get("place") or values["source"])
        detail = f" ({snippet(values['detail'])})" if values.get("detail") else ""
        yield f"{values['rule']}{detail} at {origin}: never became a document"
    elif event.what == "dropped" and "survivor" in values:
        yield _duplicate(values)
    elif event.what == "dropped":
        found = verdict(values)
        yield f"dropped by {values['rule']}" + (f": {found}" if found else "")
    elif event.what == "kept":
        yield f"kept: text shard {values['shard']}, row {values['row']}"
    elif event.what == "mixed":
        times = {0: "left out", 1: "taken once"}.get(values["copies"], f"taken {values['copies']} times")
        yield f"{times} (weight {number(values['weight'])})"
    else:
        yield f"{event.what}: " + ", ".join(f"{name} {_shown(value)}" for name, value in values.items())


def _measurements(values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The statistics that a rule judges, those nearest to (or furthest beyond) their limit first."""
    judged = {name: item for name, item in values.items() if "min" in item or "max" in item}
    yield f"measured {len(values)} statistics, {len(judged)} of them under a rule"
    for name, item in sorted(judged.items(), key=lambda pair: (_slack(pair[1]), pair[0]))[:STATISTICS_SHOWN]:
        limits = ", ".join(f"{bound} {number(item[bound])}" for bound in ("min", "max") if bound in item)
        yield f"  {name:<40} {_shown(item['value']):>10}   {limits} {aside(item.get('detail'))}".rstrip()


def _scores(values: Mapping[str, Any]) -> Iterator[str]:
    """The classes of the model and the n-grams that weigh most, each with what it adds in nats."""
    if "unknown" in values:
        yield f"what the model saw cannot be told: {values['unknown']}"
        return
    yield "the model saw " + ", ".join(f"{name} {value:.3f}" for name, value in values["classes"].items())
    part = f" (of the first {values['read_bytes']:,} bytes)" if "read_bytes" in values else ""
    for side in ("for", "against"):
        times = (f" ({one['count']:,} times)" if one["count"] > 1 else "" for one in values[side])
        told = (f"{one['ngram']} {one['nats']:+.3g}{more}" for one, more in zip(values[side], times, strict=True))
        yield f"  {side} {next(iter(values['classes']))}, nats{part}: " + (" · ".join(told) or "nothing")


def _slack(item: Mapping[str, Any]) -> float:
    """How far inside its range a value lies, as a share of the limit; negative beyond it."""
    value = item["value"]
    if not isinstance(value, int | float):
        return float("inf")
    distances: list[float] = []
    if "min" in item:
        distances.append((value - item["min"]) / (abs(item["min"]) or 1.0))
    if "max" in item:
        distances.append((item["max"] - value) / (abs(item["max"]) or 1.0))
    return min(distances)


def _edit(edit: Mapping[str, Any]) -> str:
    """How one edit reads.

    >>> _edit({"kind": "personal.mobile", "line": None, "count": 2})
    'personal.mobile 2 times'
    >>> _edit({"kind": "substrings.passage", "line": 3, "count": 161})
    'substrings.passage of 161 characters at line 3'
    """
    line = f" at line {edit['line']}" if edit.get("line") else ""
    if edit["kind"].startswith(IN_CHARACTERS):
        return f"{plain(edit['kind'])} of {edit['count']:,} characters{line}"
    times = f" {edit['count']:,} times" if edit.get("count", 1) > 1 else ""
    return f"{plain(edit['kind'])}{line}{times}"


def _duplicate(values: Mapping[str, Any]) -> str:
    kind = {"dedup.exact": "exact duplicate", "dedup.near": "near duplicate"}.get(values["rule"], values["rule"])
    similarity = f" (similarity {number(values['value'])})" if values["rule"] == "dedup.near" else ""
    where = f", {plain_url(values['survivor_url'])}" if values.get("survivor_url") else ""
    ordinal = f" at {values['survivor_ordinal']}" if values.get("survivor_ordinal") else ""
    build = ""
    if values.get("earlier"):
        out = f", {plain(values['earlier_out'])}" if values.get("earlier_out") else ""
        build = f" in the earlier build {values['earlier']}{out}"
    decided = f", which is better by {plain(values['decided_by'])}" if values.get("decided_by") else ""
    return f"{kind}{similarity} of {values['survivor'][:ID_DIGITS]}{ordinal}{where}{build}{decided}"


def _shown(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return snippet(str(value), 80)


def _masked(event: Event) -> dict[str, Any]:
    return {"stage": event.stage, "what": event.what, "values": _masked_value(dict(event.values))}


def _masked_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: plain_url(item) if name.endswith("url") and isinstance(item, str) else _masked_value(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_masked_value(item) for item in value]
    return snippet(value) if isinstance(value, str) else value
