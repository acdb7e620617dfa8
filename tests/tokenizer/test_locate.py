"""Which document holds a token, and where a document lies: against every token of a small build with a mixture's
copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tokenizer.shard_files import write
from tests.tokenizer.texts import documents
from tokenizer.__main__ import main
from tokenizer.commands.locate import locate_document, locate_token
from tokenizer.model import Tokenizer
from tokenizer.shards import TokenShard, provenance
from tokenizer.shards.provenance import docs_path, find_rows, read_rows, write_docs
from tokenizer.shards.record import ShardError

TEXTS = ["", "学而时习之，不亦说乎", "𠀀𠀁 rare", "abc", "学而时习之，不亦说乎", *documents(3)]


def rows_of(texts: list[str], lengths: list[int], first: int = 0) -> dict[str, Any]:
    """Rows of documents whose ids and URLs tell their texts; an empty one has no URL."""
    return {
        "sequence": range(first, first + len(texts)),
        "id": [text.encode()[:16].ljust(16, b"\0") for text in texts],
        "url": [f"https://example.org/{text[:9]}" if text else None for text in texts],
        "source": ["test"] * len(texts),
        "num_tokens": lengths,
    }


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> TokenShard:
    """A shard whose provenance lies in groups of three rows."""
    tokens = [tokenizer.encode(text) for text in TEXTS]
    prefix = tmp_path_factory.mktemp("located") / "a-train"
    shard = TokenShard(write(prefix, tokens, tokenizer.vocab_size, sha256=tokenizer.sha256))
    groups = [slice(first, first + 3) for first in range(0, len(TEXTS), 3)]
    lengths = shard.lengths.tolist()
    write_docs(docs_path(shard), [rows_of(TEXTS[group], lengths[group], group.start) for group in groups])
    return shard


def test_every_token_is_found_in_its_document(shard: TokenShard, tokenizer: Tokenizer) -> None:
    offset = 0
    for sequence, text in enumerate(TEXTS):
        ids, characters = shard.sequence(sequence).tolist(), 0
        for number, id in enumerate(ids):
            place = locate_token(shard, offset + number, tokenizer)
            assert (place.sequence, place.token, place.token_id) == (sequence, number, id)
            assert (place.start, place.stop) == (offset, offset + len(ids))
            assert place.id == text.encode()[:16].ljust(16, b"\0").hex()
            assert place.character_start == characters  # spans neither overlap nor leave a character out
            characters = place.character_stop
            if not tokenizer.is_byte(id):
                assert text[place.character_start : place.character_stop] == tokenizer.decode([id])
        assert characters == len(text)
        offset += len(ids)


def test_a_document_is_found_in_all_its_places(shard: TokenShard) -> None:
    url = f"https://example.org/{TEXTS[1][:9]}"
    for column, value in (("url", url), ("id", TEXTS[1].encode()[:16])):
        places = list(locate_document([shard, shard], column, value))
        assert [place.sequence for place in places] == [1, 4, 1, 4]
        assert [(place.start, place.stop) for place in places[:2]] == [shard.bounds(1), shard.bounds(4)]
        assert {place.url for place in places} == {url}
    assert list(locate_document([shard], "url", "https://example.org/none")) == []
    assert find_rows(shard, "id", bytes(16)) == [0]  # a null URL is no URL
    assert find_rows(shard, "url", "") == []


def test_only_the_groups_that_are_asked_for_are_read(shard: TokenShard, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, tuple[str, ...]]] = []

    class Watched(pq.ParquetFile):  # type: ignore[misc]
        def read_row_group(self, group: int, columns: list[str], **options: Any) -> pa.Table:
            read.append((group, tuple(columns)))
            return super().read_row_group(group, columns=columns, **options)

        def iter_batches(self, size: int, *, row_groups: list[int], columns: list[str], **options: Any) -> Any:
            read.extend((group, tuple(columns)) for group in row_groups)
            return super().iter_batches(size, row_groups=row_groups, columns=columns, **options)

    monkeypatch.setattr(provenance.pq, "ParquetFile", Watched)
    assert sorted(read_rows(shard, {4, 3})) == [3, 4]
    assert read == [(1, ("id", "url", "source"))]
    read.clear()
    assert find_rows(shard, "id", b"abc".ljust(16, b"\0")) == [3]
    assert {columns for _, columns in read} == {("id",)}
    assert 0 not in {group for group, _ in read} or 2 not in {group for group, _ in read}  # statistics rule some out


def test_provenance_that_does_not_fit_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    shard = TokenShard(write(tmp_path / "a", [[5], [6]]))
    with pytest.raises(ShardError, match=r"a\.docs\.parquet: missing"):
        read_rows(shard, {0})
    write_docs(docs_path(shard), [rows_of(["x"], [2])])
    with pytest.raises(ShardError, match=r"a\.docs\.parquet: does not describe .*1 rows for 2"):
        find_rows(shard, "url", "x")
    pq.write_table(pa.table({"sequence": [0, 1]}), docs_path(shard))
    for read in (lambda: find_rows(shard, "url", "x"), lambda: read_rows(shard, {0})):
        with pytest.raises(ShardError, match=r"a\.docs\.parquet: its columns are not"):
            read()
    docs_path(shard).write_bytes(b"PAR1" * 9)
    with pytest.raises(ShardError, match=r"a\.docs\.parquet: missing or damaged"):
        find_rows(shard, "url", "x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--token", "-1"], "counted from 0"),
        (["--token", "9999999"], "counted from 0"),
        (["--token", "0", "--shard", "other"], "prefix of one shard"),
        (["--token", "0"], "lies in no build"),
        (["--id", "00"], "32 hexadecimal digits"),
        (["--id", "x" * 32], "32 hexadecimal digits"),
        (["--id", "ab" * 16], "holds no document"),
        (["--url", "https://example.org/none"], "holds no document"),
        (["--url", "https://example.org/\udcff"], "is not UTF-8"),  # a byte of the command line that is none
    ],
)
def test_what_is_not_there_exits_with_2(
    shard: TokenShard, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["locate", str(shard.prefix), *words]) == 2
    assert message in capsys.readouterr().err
