"""Which way a model's texts are encoded, and that every run compares some documents with SentencePiece."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.storage import File
from tests.examples import examples
from tests.tokenizer.kernel_cases import INT32, UINT16, arrow, assert_equal, foreign
from tests.tokenizer.texts import documents
from tokenizer import encode, model
from tokenizer.encode import DOCUMENTS, Encoded, encode_file, ordered_tokens
from tokenizer.kernels import encoder
from tokenizer.kernels.encoder import BatchEncoder, batch_encoder, build_kernel, encode_with
from tokenizer.kernels.lexicon import read_lexicon
from tokenizer.kernels.text_kernels import Kernel, chunk_end
from tokenizer.kernels.trie import BASE, CHECK, VALUE, WEIGHT, build
from tokenizer.model import SPACE_MARK, Tokenizer
from tokenizer.pieces import BPE, UNIGRAM


@pytest.fixture(scope="module")
def unigram(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return foreign(tmp_path_factory.mktemp("unigram") / "x.model", model_type="unigram")


def test_a_kernel_encodes_our_models(tokenizer: Tokenizer, unigram: Tokenizer) -> None:
    assert BatchEncoder(tokenizer).reason is BatchEncoder(unigram).reason is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "char"}, "neither BPE nor Unigram"),
        ({"model_type": "bpe", "control_symbols": ["学"]}, "single character"),
    ],
)
def test_other_models_are_sentencepieces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], reason: str
) -> None:
    tokenizer = foreign(tmp_path / "x.model", **options)
    encoder, texts = BatchEncoder(tokenizer), [*documents(5, start=50), "", f"{SPACE_MARK}x"]
    assert reason in str(encoder.reason) and reason in caplog.text
    found = encoder.encode(arrow(texts))
    assert_equal(tokenizer, found, texts)
    assert {ids.dtype for ids in found} == {UINT16}


def test_a_batch_may_be_empty_a_slice_or_without_bytes(tokenizer: Tokenizer, unigram: Tokenizer) -> None:
    texts = [*documents(6, start=70), "", ""]
    for some in (tokenizer, unigram):
        encoder = BatchEncoder(some)
        assert encoder.encode(arrow([])) == []
        assert [ids.tolist() for ids in encoder.encode(arrow(["", ""]))] == [[], []]
        for start, stop in ((0, 8), (2, 5), (6, 8), (5, 5)):
            found = encoder.encode(arrow(texts)[start:stop])
            assert_equal(some, found, texts[start:stop])
            assert all(ids.dtype == UINT16 for ids in found)


def test_equal_tokenizers_share_an_encoder(tokenizer: Tokenizer, unigram: Tokenizer) -> None:
    encoder = batch_encoder(tokenizer)
    assert batch_encoder(Tokenizer(tokenizer.path)) is encoder
    assert batch_encoder(unigram) is not encoder


@pytest.mark.slow
def test_ids_of_four_bytes(tokenizer: Tokenizer, unigram: Tokenizer) -> None:
    for some in (tokenizer, unigram):
        found = encode_with(build_kernel(some), arrow(documents(5)), INT32)
        assert {ids.dtype for ids in found} == {INT32}
        assert_equal(some, found, documents(5))


def wrong(tokenizer: Tokenizer) -> Kernel:
    """A kernel that takes one character for another."""
    kernel = build_kernel(tokenizer)
    symbols = kernel.tables.symbols
    symbols[ord("学")], symbols[ord("而")] = symbols[ord("而")], symbols[ord("学")]
    return kernel


def test_other_ids_on_a_trial_text_are_a_reason(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = wrong(tokenizer)
    monkeypatch.setattr(encoder, "build_kernel", lambda _: kernel)
    found = BatchEncoder(tokenizer)
    assert "ids differ on a trial text" in str(found.reason)
    assert_equal(tokenizer, found.encode(arrow(["学而时习之"])), ["学而时习之"])


def shard(path: Path, texts: list[str]) -> File:
    ids = [bytes([number % 251]) * 16 for number in range(len(texts))]
    pq.write_table(pa.table({"id": pa.array(ids, pa.binary(16)), "text": pa.array(texts, pa.large_string())}), path)
    return File(str(path), path.stat().st_size, "")


def sequences(encoded: Encoded) -> list[Any]:
    return np.split(encoded.tokens, np.cumsum(encoded.column("num_tokens"))[:-1])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(1, 12), st.data())
def test_tokens_come_in_the_order_of_rows(lengths: list[int], limit: int, data: st.DataObject) -> None:
    """Whatever is put together at once; rows may come again, and documents may be empty."""
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=40))
    columns = {name: [0] * len(lengths) for name in DOCUMENTS.names[3:]} | {"num_tokens": lengths}
    columns |= {name: [None] * len(lengths) for name in DOCUMENTS.names[:3]}
    encoded = Encoded(np.arange(sum(lengths), dtype=np.uint16), pa.table(columns, DOCUMENTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "WRITTEN_TOKENS", limit)
        found = list(ordered_tokens(encoded, np.array(rows), 999))
    expected = [[*sequences(encoded)[row].tolist(), 999] for row in rows]
    for group, tokens in found:
        assert tokens.tolist() == list(chain(*expected[group])) and tokens.dtype == np.uint16
        assert group.stop - group.start == 1 or len(tokens) < limit + max(map(len, expected))
    assert [row for group, _ in found for row in rows[group]] == rows


def test_each_batch_compares_a_document(tokenizer: Tokenizer, tmp_path: Path) -> None:
    texts = documents(1500)
    encoded, counts = encode_file(shard(tmp_path / "x.parquet", texts), tokenizer)
    assert counts.extra["compared"] == 2 and "encoded_again" not in counts.extra
    assert_equal(tokenizer, sequences(encoded), texts)


def test_a_document_that_differs_brings_sentencepiece_back(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The ids of every document are right then, and the log names one document but not its text."""
    kernel, texts = wrong(tokenizer), [f"学而时习之{number}" for number in range(30)]
    monkeypatch.setattr(encoder, "build_kernel", lambda _: kernel)
    monkeypatch.setattr(encoder, "_trial", lambda *_: None)
    batch_encoder.cache_clear()
    try:
        file = shard(tmp_path / "x.parquet", texts)
        encoded, counts = encode_file(file, tokenizer)
        again, _ = encode_file(file, tokenizer)
    finally:
        batch_encoder.cache_clear()
    assert_equal(tokenizer, sequences(encoded), texts)
    assert_equal(tokenizer, sequences(again), texts)
    assert counts.extra["encoded_again"] == 1 and "compared" not in counts.extra
    assert counts.documents_in == counts.documents_out == 30
    (first, second) = [record.getMessage() for record in caplog.records]
    assert first == second and any(bytes([number] * 16).hex() in first for number in range(30))
    assert "学而" not in first


def test_of_a_long_document_the_beginning_is_compared(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def differing(_: BatchEncoder, texts: pa.LargeStringArray) -> list[int]:
        seen.extend(map(len, texts.to_pylist()))
        return []

    monkeypatch.setattr(encode, "COMPARED_CHARACTERS", 50)
    monkeypatch.setattr(BatchEncoder, "differing", differing)
    encode_file(shard(tmp_path / "x.parquet", ["学而时习之" * 1000]), tokenizer)
    assert seen == [50]


def test_a_lexicon_has_the_kinds_of_the_model(tmp_path: Path) -> None:
    options = {"user_defined_symbols": ["<n>", f"a{SPACE_MARK}b", "c d"], "control_symbols": ["<|x|>"]}
    for kind, number in (("bpe", BPE), ("unigram", UNIGRAM)):
        tokenizer = foreign(tmp_path / "x.model", model_type=kind, **options)
        lexicon = read_lexicon(tokenizer)
        assert lexicon.model_type == number
        assert set(lexicon.user) == {"<n>", "a b"}  # SentencePiece never finds a piece with a real space
        assert not lexicon.unused and "<|x|>" not in lexicon.normal and "<unk>" not in lexicon.normal
        assert lexicon.normal["学"] == tokenizer.processor.piece_to_id("学")
        assert [tokenizer.piece_bytes(id) for id in lexicon.spelled.tolist()] == [bytes([byte]) for byte in range(256)]
        others = 256 + 1 + sum(tokenizer.is_control(id) for id in range(tokenizer.vocab_size))
        assert len(lexicon.normal) + len(lexicon.user) + others == tokenizer.vocab_size


@given(
    st.dictionaries(st.text(st.sampled_from("ab学而\U00020000\0"), min_size=1, max_size=6), st.floats(-9, 0, width=32))
)
def test_a_trie_holds_its_strings_and_no_others(weights: dict[str, float]) -> None:
    trie = build({string: (value, weight) for value, (string, weight) in enumerate(weights.items())})
    found = {}
    stack = [("", 0)]
    while stack:
        prefix, base = stack.pop()
        for code in map(ord, "ab学而\U00020000\0c"):
            number = int(trie.numbers[code])
            slot = base + number
            if number and (not base or trie.nodes[slot, CHECK] == base):
                string = prefix + chr(code)
                if trie.nodes[slot, VALUE] >= 0:
                    found[string] = (int(trie.nodes[slot, VALUE]), float(trie.weights[slot, WEIGHT]))
                else:
                    assert trie.weights[slot, WEIGHT] == -np.inf
                if trie.nodes[slot, BASE]:
                    stack.append((string, int(trie.nodes[slot, BASE])))
    assert found == {string: (value, weight) for value, (string, weight) in enumerate(weights.items())}


@given(text=st.text(st.sampled_from("a学\n\U00020000"), max_size=60), limit=st.integers(1, 9))
@examples(300)
def test_chunks_end_where_the_tokenizers_do(text: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "CHUNK_CHARACTERS", limit)
        expected = [chunk.encode() for chunk in model._chunks(text) if chunk]
    data, start, found = np.frombuffer(text.encode(), np.uint8), 0, []
    while start < len(data):
        stop = chunk_end(data, start, len(data), limit)
        found.append(data[start:stop].tobytes())
        start = stop
    assert found == expected
