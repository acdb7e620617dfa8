"""Candidates side by side on the same texts, and which is better at what."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tokenizer.kernels.encoder import BatchEncoder, batch_encoder
from tokenizer.model import Tokenizer
from tokenizer.report.shown import cut, number, percent, plain, table
from tokenizer.report.texts import all_texts, evenly
from tokenizer.report.vocabulary import vocabulary_report

SPEED_CHARACTERS = 1_500_000  # of text that is encoded to measure speed
SPEED_RUNS = 3  # the fastest counts
NAME_COLUMNS = 24
SOURCE_COLUMNS = 40
KERNELS = "kernels"
SIZES_DIFFER = (
    "the vocabularies differ in size: a larger one needs fewer tokens and pays with rows of the embedding; Renyi "
    "efficiency compares vocabularies of one size"
)
TIE = 0.001  # relative difference below which two are equal


@dataclass(frozen=True)
class Measure:
    """A figure that candidates are compared by."""

    key: str
    label: str
    format: str  # integer | ratio | percent | speed
    better: str | None = None  # "more" or "less"; None where neither is better by itself
    best: str = ""  # what the best one is said to be


MEASURES = (
    Measure("vocab_size", "vocabulary", "integer"),
    Measure("measured_tokens", "tokens of these texts", "integer"),
    Measure("characters_per_token", "characters/token", "ratio", "more", "fewest tokens for these texts"),
    Measure(
        "worst_characters_per_token", "characters/token, worst source", "ratio", "more", "best in its worst source"
    ),
    Measure("byte_fallback_ratio", "byte fallback", "percent", "less", "least byte fallback"),
    Measure("renyi_efficiency", "Renyi efficiency (2.5)", "ratio", "more", "most even use of its ids (Renyi)"),
    Measure("used_pieces_ratio", "ids used", "percent", "more", "largest part of the vocabulary in use"),
    Measure("suspicious_pieces", "suspicious pieces", "integer", "less", "fewest suspicious pieces"),
    Measure("megabytes_per_second", "encode, MB/s on one core", "speed", "more", "fastest to encode"),
)


def compare(candidates: Mapping[str, Tokenizer], texts_by_source: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """`candidates`: the figures of each by name, in the order given, its whole report under `report`; `best`: see
    `best_of`.

    All but the speed follow from models and texts alone.

    Raises:
        TokenizerError: a text holds lone surrogates.
    """
    encoders = {name: batch_encoder(tokenizer) for name, tokenizer in candidates.items()}
    measured = speeds(encoders, evenly(all_texts(texts_by_source), SPEED_CHARACTERS))
    rows = {}
    for name, tokenizer in candidates.items():
        report = vocabulary_report(tokenizer, texts_by_source)
        by_source, by_script = (_characters_per_token(report[group]) for group in ("sources", "scripts"))
        rows[name] = {
            **{measure.key: report[measure.key] for measure in MEASURES if measure.key in report},
            "worst_characters_per_token": min(by_source.values(), default=None),
            "megabytes_per_second": measured[name],
            "encoder": encoders[name].reason or KERNELS,
            "sources": by_source,
            "scripts": by_script,
            "report": report,
        }
    return {"candidates": rows, "best": best_of(rows)}


def _characters_per_token(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """By name of a group; those without tokens are left out."""
    return {name: found["characters_per_token"] for name, found in groups.items() if found["tokens"]}


def best_of(rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each measure with a better end: the names of the best candidates (within 0.1 %), the best value, the next
    one.

    `next` is None where all are equal.
    """
    found = []
    for measure in MEASURES:
        values = {name: row[measure.key] for name, row in rows.items() if row[measure.key] is not None}
        if measure.better is None or not values:
            continue
        pick = max if measure.better == "more" else min
        best = pick(values.values())
        names = [name for name, value in values.items() if abs(value - best) <= TIE * abs(best)]
        others = [value for name, value in values.items() if name not in names]
        found.append({"measure": measure.key, "names": names, "value": best, "next": pick(others) if others else None})
    return found


def speeds(encoders: Mapping[str, BatchEncoder], texts: Sequence[str]) -> dict[str, float | None]:
    """Megabytes of UTF-8 a second of each, on one thread: the fastest of some runs, in turn, over the same texts."""
    array = pa.array(texts, pa.large_string())
    num_bytes = sum(len(text.encode()) for text in texts)
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for run in range(SPEED_RUNS + 1):
        for name, encoder in encoders.items():
            start = time.perf_counter()
            encoder.encode(array)
            if run:  # the first compiles kernels
                seconds[name].append(time.perf_counter() - start)
    return {name: round(num_bytes / min(found) / 1e6, 2) if num_bytes else None for name, found in seconds.items()}


def comparison_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """A head and a row for each measure, source and script, a column for each candidate."""
    rows = result["candidates"]
    first = next(iter(rows.values()))
    names = [plain(name) for name in rows]
    short = [cut(name, NAME_COLUMNS) for name in names]
    found = [["", *(short if len(set(short)) == len(short) else names)]]
    found += [[m.label, *(_format(m, row[m.key]) for row in rows.values())] for m in MEASURES]
    for group in ("sources", "scripts"):
        for name in first[group]:
            cells = [number(row[group][name], 3) for row in rows.values()]
            found.append([f"characters/token: {cut(plain(name), SOURCE_COLUMNS)}", *cells])
    return found


def verdicts(result: Mapping[str, Any]) -> list[str]:
    """Which candidate is better at what, a sentence each, and what to bear in mind."""
    candidates = result["candidates"]
    measures = {measure.key: measure for measure in MEASURES}
    found = []
    for best in result["best"]:
        measure = measures[best["measure"]]
        names = ", ".join(map(plain, best["names"])) if best["next"] is not None else "no difference"
        after = "" if best["next"] is None else f"; the next {_format(measure, best['next'])}"
        found.append(f"{measure.best}: {names} ({_format(measure, best['value'])}{after})")
    if len({row["vocab_size"] for row in candidates.values()}) > 1:
        found.append(SIZES_DIFFER)
    kernels = {name: row["encoder"] for name, row in candidates.items() if row["encoder"] != KERNELS}
    return found + [f"{plain(name)} is encoded by SentencePiece: {plain(reason)}" for name, reason in kernels.items()]


def summarize(result: Mapping[str, Any]) -> str:
    """The table and the verdicts, for a terminal."""
    return table(comparison_rows(result)) + "\n\n" + "\n".join(verdicts(result))


def _format(measure: Measure, value: float | None) -> str:
    if measure.format == "percent":
        return percent(value)
    return number(value, {"ratio": 3, "speed": 1}.get(measure.format, 0))
