"""Readers of input formats on one core, beside what else reads them: MB of the files' text for a CPU second.

    python -m tools.bench readers --input 'data/*.jsonl' --peers
    python -m tools.bench readers --input 'books/*.epub' 'papers/*.pdf' --peers

Texts are written once as every format and read back as records; documents (PDF, EPUB, DOCX) are read as they are, and
their text is what ours found. Every reader hands out Python strings of the texts; ours also fields, ids and offsets.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import tempfile
import zipfile
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from corpus.engine.inputs import list_inputs
from corpus.engine.storage import local_path
from corpus.sources import Record, SourcesConfig, kind_of, read
from tools.bench.inputs import read_documents, spread
from tools.bench.peers.environment import READERS
from tools.bench.timing import one_core, show, speed

MAX_BYTES = 20_000_000
DOCUMENTS = ("pdf", "epub", "docx")


def run(arguments: Namespace) -> None:
    """Print the table: ours, then its peers, with the ratio to ours."""
    given = [local_path(file.url) for file in list_inputs(arguments.input or [])]
    documents = {kind: [path for path in given if kind_of(path) == kind] for kind in DOCUMENTS}
    if arguments.peers:
        READERS.install()
    with tempfile.TemporaryDirectory() as folder, one_core():
        groups = {kind: paths for kind, paths in documents.items() if paths}
        if not groups:
            groups = {name: [path] for name, path in write_all(Path(folder), arguments).items()}
        named = json.dumps({kind: [str(path) for path in paths] for kind, paths in groups.items()})
        peers = READERS.run("read_files.py", named) if arguments.peers else {}
        for name, paths in groups.items():
            size = sum(len(text.encode()) for text in texts_of(paths))
            rate = speed(size, partial(texts_of, paths))
            show(name, rate, note=f"{len(paths):,} files, {size / 1e6:,.1f} MB of text")
            for peer, seconds in peers.get(name, {}).items():
                show(f"  {peer}", size / 1e6 / seconds, rate)


def texts_of(paths: Sequence[Path]) -> list[str]:
    """The texts of files, by our readers."""
    config = SourcesConfig(document="line")
    found = (record for path in paths for record in read(str(path), config))
    return [record.text or record.raw.decode() for record in found if isinstance(record, Record)]


def write_all(folder: Path, arguments: Namespace) -> dict[str, Path]:
    """The same documents in every format."""
    texts = spread(list(read_documents(arguments)), MAX_BYTES)
    rows: list[dict[str, Any]] = [{"id": index, "text": text} for index, text in enumerate(texts)]
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    paths = {name: folder / f"a.{name}" for name in "jsonl jsonl.gz jsonl.xz json csv parquet arrow txt zip".split()}
    paths["jsonl"].write_bytes(lines)
    paths["jsonl.gz"].write_bytes(gzip.compress(lines))
    paths["jsonl.xz"].write_bytes(lzma.compress(lines, preset=1))
    paths["json"].write_text(json.dumps(rows, ensure_ascii=False, indent=1), "utf-8")
    with open(paths["csv"], "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(rows)
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, paths["parquet"], compression="zstd")
    pyarrow.feather.write_feather(table, paths["arrow"], compression="uncompressed")
    paths["txt"].write_text("\n".join(text.replace("\n", " ") for text in texts), "utf-8")
    with zipfile.ZipFile(paths["zip"], "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(paths["jsonl"], "a.jsonl")
    return paths
