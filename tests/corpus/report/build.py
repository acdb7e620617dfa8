"""A small build made by the real engine from toy stages that write what real stages write.

Two shards of documents, some of them hostile, plus two records that never became documents. What must happen to each is
written down in `RECORDS`, so tests need no second implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.dedup.near.survivors import INDEX_SCHEMA
from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, document_id, read_table, write_table
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import fetch
from corpus.safe import plain_url, snippet

MIN_CHARS, MAX_REPEATED = 12, 0.20
RULE = "repetition.top_2_gram_ratio"
EDIT = {"kind": "boilerplate.editor", "line": 3, "count": 1}
LINES = (
    "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？",
    "温故而知新，可以为师矣。学而不思则罔，思而不学则殆。",
    "三人行，必有我师焉。择其善者而从之，其不善者而改之。",
    "知之者不如好之者，好之者不如乐之者。",
    "岁寒，然后知松柏之后凋也。",
    "逝者如斯夫，不舍昼夜。己所不欲，勿施于人。",
)
MOBILE, MAIL = "13800138000", "wang@example.com"
HOSTILE_TITLE = "<script>alert(1)</script>\x1b]0;owned\x07|`x`"
HOSTILE_URL = "https://evil.example/<script>alert(2)</script>?mobile=13800138000"
HOSTILE_TEXT = f"</td><script>alert(3)</script>\x1b[31m手机{MOBILE}，邮箱{MAIL}|a|b|\u202e乐乐乐乐乐乐乐乐乐乐乐乐"


@dataclass(frozen=True)
class Record:
    """One document and its intended end: kept, short, repeated, exact or near (of the document in row `of`)."""

    text: str
    end: str
    url: str | None
    title: str | None = None
    repeated: float = 0.05
    of: int = 0

    def id(self, source: str) -> bytes:
        return document_id(source, self.url or "", self.text.encode())


def _records(shard: int) -> list[Record]:
    kept = [
        Record(line * (3 + index), "kept", f"https://site{index % 3}.example/{shard}/{index}", "论语", 0.01 * index)
        for index, line in enumerate(LINES)
    ]
    twin = Record("吾日三省吾身：为人谋而不忠乎？" * 2, "kept", f"https://twin.example/{shard}", repeated=0.11)
    return [
        *kept,
        Record("不亦乐乎。", "short", f"https://site0.example/{shard}/short"),
        Record(HOSTILE_TEXT, "repeated", HOSTILE_URL + f"&shard={shard}", HOSTILE_TITLE, 0.31),
        Record(kept[0].text, "exact", f"https://copy.example/{shard}"),
        Record(kept[0].text + "子曰。", "near", f"https://near.example/{shard}", repeated=0.19),
        replace(twin, end="exact", of=11),  # the same record read twice: one id, two documents, and the later one stays
        twin,
    ]


RECORDS: dict[str, list[Record]] = {f"{shard:05d}-00": _records(shard) for shard in range(2)}
SOURCE = "pages.warc.gz"
BROKEN_PLACE = "pages.warc.gz:offset 4711"


def identify(shard: str, row: int) -> bytes:
    """The id of a document."""
    return RECORDS[shard][row].id(SOURCE)


def build(out: Path, *, tokens: bool = True, lost: int = 0) -> str:
    """Run the toy pipeline into `out`; `lost` documents vanish between filter and text, which no single stage
    notices."""
    stages: list[Stage] = [Extract(), Filter(), Text(lost)]
    run_stages([*stages, Tokens()] if tokens else stages, str(out), workers=0)
    return str(out)


@dataclass(frozen=True)
class Extract(Stage):
    name: ClassVar[str] = "extract"
    version: ClassVar[int] = 1

    def config(self) -> dict[str, Any]:
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(shard) for shard in RECORDS]

    def run(self, task: Task, out: Output) -> Counts:
        records = RECORDS[task.name]
        rows = [
            {
                "id": record.id(SOURCE),
                "row": row,
                "source": SOURCE,
                "url": record.url,
                "title": record.title,
                "encoding": "gb18030" if row % 2 else "utf-8",
                "text": record.text,
            }
            for row, record in enumerate(records)
        ]
        with out.create(f"data/{task.name}.parquet", rows=len(rows)) as path:
            write_table(path, pa.Table.from_pylist(rows, DOCUMENT_SCHEMA))
        broken = {
            "id": document_id(SOURCE, BROKEN_PLACE, task.name.encode()),
            "source": SOURCE,
            "place": BROKEN_PLACE if task.name.startswith("00000") else "pages.warc.gz:offset 1",
            "rule": "error:truncated",
            "detail": f"ended after 12 of 99 bytes, near {MAIL}",
        }
        with out.create(f"fates/{task.name}.parquet", rows=1) as path:
            write_table(path, pa.Table.from_pylist([broken], FATE_SCHEMA))
        size = sum(len(record.text.encode()) for record in records)
        return Counts(len(records) + 1, len(records), size, size, errors={"truncated": 1})


@dataclass(frozen=True)
class Filter(Stage):
    name: ClassVar[str] = "filter"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("extract",)

    def config(self) -> dict[str, Any]:
        return {"rules": [["length.num_chars", MIN_CHARS, None], [RULE, None, MAX_REPEATED]]}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(shard_name(file), (file,)) for file in upstream["extract"].files()]

    def run(self, task: Task, out: Output) -> Counts:
        table = read_table(fetch(task.inputs[0].url))
        records = RECORDS[task.name]
        counts = Counts(table.num_rows)
        fates, kept = [], []
        for record, row in zip(records, table.to_pylist(), strict=True):
            fate = {name: row[name] for name in ("id", "row", "source", "url")} | {"shard": task.name}
            if record.end == "short":
                fate |= {"rule": "length.num_chars", "value": len(record.text), "threshold": MIN_CHARS, "bound": "min"}
            elif record.end == "repeated":
                fate |= {"rule": RULE, "value": record.repeated, "threshold": MAX_REPEATED, "bound": "max"}
            else:
                kept.append(row)
                continue
            counts.drop(fate["rule"])
            fates.append(fate)
        fate_of = {fate["row"]: fate["rule"] for fate in fates}
        statistics = pa.table(
            {
                "row": pa.array(range(len(records)), pa.uint32()),
                "kept": [record.end not in ("short", "repeated") for record in records],
                "rule": pa.array([fate_of.get(row) for row in range(len(records))], pa.string()),
                "edits": pa.array([[EDIT] if row == 0 else None for row in range(len(records))]),
                "length.num_chars": [float(len(record.text)) for record in records],
                RULE: [record.repeated for record in records],
                "script.kana_ratio": [0.0 for _ in records],
            }
        )
        failed = {"length.num_chars": "length.num_chars.min", RULE: f"{RULE}.max"}
        samples = [
            {
                "row": row,
                "id": record.id(SOURCE),
                "url": plain_url(record.url or ""),
                "excerpt": snippet(record.text),
                "failed": failed.get(fate_of.get(row, "")),
                "chosen_for": [failed[fate_of[row]]] if row in fate_of else list(failed.values()),
                "length.num_chars": float(len(record.text)),
                RULE: record.repeated,
            }
            for row, record in enumerate(records)
        ]
        for kind, made in (
            ("data", pa.Table.from_pylist(kept, DOCUMENT_SCHEMA)),
            ("fates", pa.Table.from_pylist(fates, FATE_SCHEMA)),
            ("statistics", statistics),
            ("samples", pa.Table.from_pylist(samples)),
        ):
            with out.create(f"{kind}/{task.name}.parquet", rows=made.num_rows) as path:
                write_table(path, made)
        counts.documents_out = len(kept)
        counts.bytes_in = sum(len(record.text.encode()) for record in records)
        counts.bytes_out = sum(len(row["text"].encode()) for row in kept)
        return counts


@dataclass(frozen=True)
class Text(Stage):
    lost: int = 0

    name: ClassVar[str] = "text"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("filter",)

    def config(self) -> dict[str, Any]:
        return {"threshold": 0.8, "lost": self.lost}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(shard_name(file), (file,)) for file in upstream["filter"].files()]

    def run(self, task: Task, out: Output) -> Counts:
        rows = read_table(fetch(task.inputs[0].url)).to_pylist()[self.lost :]
        counts = Counts(len(rows), 0, sum(len(row["text"].encode()) for row in rows))
        kept, fates = [], []
        for row in rows:
            record = RECORDS[task.name][row["row"]]
            if record.end == "kept":
                kept.append(row)
                continue
            near = record.end == "near"
            fate = {name: row[name] for name in ("id", "row", "source", "url")} | {"shard": task.name}
            fates.append(
                fate
                | {"rule": f"dedup.{record.end}", "value": 0.91 if near else 1.0, "threshold": 0.8 if near else None}
                | {"bound": "max" if near else None, "detail": identify(task.name, record.of).hex()}
            )
            counts.drop(f"dedup.{record.end}")
        index = [
            {
                **{name: row[name] for name in ("id", "row", "source")},
                "text_bytes": len(row["text"].encode()),
                "cluster_size": 1 + sum(fate["detail"] == row["id"].hex() for fate in fates),
                "survivor": True,
            }
            for row in kept
        ]
        tables = (("data", kept, DOCUMENT_SCHEMA), ("fates", fates, FATE_SCHEMA), ("index", index, INDEX_SCHEMA))
        for kind, made, schema in tables:
            with out.create(f"{kind}/{task.name}.parquet", rows=len(made)) as path:
                write_table(path, pa.Table.from_pylist(made, schema))
        counts.documents_out = len(kept)
        counts.bytes_out = sum(len(row["text"].encode()) for row in kept)
        return counts


@dataclass(frozen=True)
class Tokens(Stage):
    name: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("text",)

    def config(self) -> dict[str, Any]:
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(shard_name(file), (file,)) for file in upstream["text"].files()]

    def run(self, task: Task, out: Output) -> Counts:
        rows = read_table(fetch(task.inputs[0].url), ["id", "text"]).to_pylist()[::-1]
        with out.create(f"data/{task.name}-train.docs.parquet", rows=len(rows)) as path:
            pq.write_table(pa.table({"id": pa.array([row["id"] for row in rows], pa.binary(16))}), path)
        with out.create(f"data/{task.name}-train.bin") as path:
            path.write_bytes(b"".join(row["text"].encode("utf-16-le") for row in rows))
        size, characters = (
            sum(map(len, some)) for some in ((r["text"].encode() for r in rows), (r["text"] for r in rows))
        )
        return Counts(len(rows), len(rows), size, size, extra={"tokens_train": characters})
