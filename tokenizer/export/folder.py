"""Writes the folder that transformers loads, once its ids are proven equal: complete under its name, or not there."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corpus.engine import durable
from corpus.engine.errors import UsageError
from tokenizer.export.convert import ExportError, counted_apart, is_bpe, tokenizer_config, tokenizer_json
from tokenizer.export.proof import (
    TOKENIZER_JSON,
    Comparison,
    Document,
    Library,
    compare,
    open_tokenizers,
    open_transformers,
    trial_documents,
)
from tokenizer.model import EOD_PIECE, Tokenizer

README = """# Tokenizer

```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
ids = tokenizer("学而时习之")["input_ids"]
```

or without transformers: `tokenizers.Tokenizer.from_file("path/to/this/folder/tokenizer.json")`.

- {vocab_size:,} ids. `{eod_piece}` is {eod}: it ends a document, nothing adds it by itself, and text never becomes it:
  its {eod_length} characters in a text stay characters, as do the names of all control symbols. In a string that you
  wrote yourself, for example from a template, `tokenizer(text, split_special_tokens=False)` turns the names into ids.
  `tokenizers` alone finds no control symbol in text and prints their names when it decodes them.
- decode(encode(text)) == text for every text. Bytes that a cut left without the rest of their character are shown as
  U+FFFD, not always the same number of times as SentencePiece's Python module shows.
- `tokenizer.model` is the SentencePiece model that all this was made from (sha256 {sha256}).
  A program that opens that file itself has to spell U+2581 in its three bytes, and to cut a line after each 65,536
  characters.
{limit}
Ids and decoded texts were equal to the model's on {num_documents:,} documents ({num_characters:,} characters,
{num_tokens:,} tokens) and {num_trials:,} trial texts, with {libraries}.
"""


LIMIT = """- These libraries cut such a line elsewhere where it holds one of {symbols}: they count
  its characters from behind the symbol. Ids around the cut can differ from the model's.
"""


@dataclass(frozen=True)
class Proof:
    """What was compared before a folder was written: documents and trial texts, for each library."""

    documents: list[Comparison]
    trials: list[Comparison]


def export(tokenizer: Tokenizer, documents: Iterable[Document], out: Path, *, num_documents: int) -> Proof:
    """Write `out`, a folder that must not be there yet.

    Raises:
        UsageError: `out` exists, or there are fewer than `num_documents` documents.
        ExportError: a library gives other ids or another text for any document or trial text.
    """
    with new_folder(out) as folder:
        write_files(tokenizer, folder)
        proof = prove(tokenizer, documents, folder, num_documents=num_documents)
        durable.write_bytes(folder / "README.md", _readme(tokenizer, proof).encode())
    return proof


def write_files(tokenizer: Tokenizer, folder: Path) -> None:
    """Write what transformers loads a tokenizer from, and the model itself; `prove` them before anyone uses them.

    Raises:
        ExportError: the model has pieces that the format cannot hold.
    """
    durable.write_bytes(folder / TOKENIZER_JSON, durable.canonical_json(tokenizer_json(tokenizer)))
    durable.write_json(folder / "tokenizer_config.json", tokenizer_config(tokenizer))
    durable.write_bytes(folder / "tokenizer.model", tokenizer.path.read_bytes())


def prove(tokenizer: Tokenizer, documents: Iterable[Document], folder: Path, *, num_documents: int) -> Proof:
    """Compare the files of a folder, as both libraries load them, with the model."""
    transformers = open_transformers(folder)
    _check_symbols(tokenizer, transformers)
    libraries = (open_tokenizers(folder), transformers)
    found = _compare(tokenizer, libraries, documents, "documents")
    if found[0].num_documents < num_documents:
        raise UsageError(
            f"--text: {found[0].num_documents:,} documents, and equality is to be shown on {num_documents:,}. Name "
            "more "
            f"text, or be content with less: --documents {found[0].num_documents}."
        )
    return Proof(found, _compare(tokenizer, libraries, trial_documents(tokenizer), "trial texts"))


def prove_texts(tokenizer: Tokenizer, texts: Sequence[str], folder: Path) -> Proof:
    """`prove` on texts that are nobody's documents."""
    documents = [Document(f"text {number}", text) for number, text in enumerate(texts)]
    return prove(tokenizer, documents, folder, num_documents=len(documents))


def _compare(
    tokenizer: Tokenizer, libraries: Sequence[Library], documents: Iterable[Document], kind: str
) -> list[Comparison]:
    """Raises `ExportError` where anything differs."""
    comparisons = compare(tokenizer, libraries, documents)
    for found in comparisons:
        if not found.is_equal:
            raise ExportError(_refusal(tokenizer, kind, found))
    return comparisons


def _check_symbols(tokenizer: Tokenizer, library: Library) -> None:
    """That transformers has the ids of the model and no others, and knows which end and which are no text."""
    backend = library.backend
    controls = [id for id in range(tokenizer.vocab_size) if tokenizer.is_control(id)]
    found = (
        len(backend),
        backend.eos_token_id,
        backend.convert_tokens_to_ids([tokenizer.piece(id) for id in controls]),
    )
    if found != (tokenizer.vocab_size, tokenizer.eod, controls) or backend.decode(controls, skip_special_tokens=True):
        raise ExportError(f"{tokenizer.path}: {library.name} numbers control symbols otherwise. Report this as a bug.")


def _refusal(tokenizer: Tokenizer, kind: str, found: Comparison) -> str:
    cause = "This is a bug of the export; please report it."
    if not is_bpe(tokenizer):
        cause = (
            "Ties between ways to cut a text are broken by rounding, which SentencePiece does in float32 and others in "
            "float64 (see tokenizer/pieces.py). Vocabularies that `python -m tokenizer run` trains have exact sums: "
            "train this one again."
        )
    return (
        f"{tokenizer.path}: not exported. {found.library} gives other ids for {found.num_other_ids:,} of "
        f"{found.num_documents:,} {kind} and decodes {found.num_other_texts:,} to another text; the first is "
        f"{found.first}. {cause}"
    )


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `out` that takes its name at the end, or goes.

    Raises:
        UsageError: `out` exists.
    """
    if out.exists():
        raise UsageError(f"{out}: is there already. Name another folder, or remove it first.")
    temporary = out.parent / f".{out.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    temporary.mkdir(parents=True)
    try:
        yield temporary
        os.rename(temporary, out)
        durable.sync_folder(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _readme(tokenizer: Tokenizer, proof: Proof) -> str:
    found, symbols = proof.documents[0], counted_apart(tokenizer)
    return README.format(
        limit=LIMIT.format(symbols=", ".join(f"`{symbol}`" for symbol in symbols)) if symbols else "",
        vocab_size=tokenizer.vocab_size,
        eod_piece=EOD_PIECE,
        eod=tokenizer.eod,
        eod_length=len(EOD_PIECE),
        sha256=tokenizer.sha256,
        num_documents=found.num_documents,
        num_characters=found.num_characters,
        num_tokens=found.num_tokens,
        num_trials=proof.trials[0].num_documents,
        libraries=" and ".join(comparison.library for comparison in proof.documents),
    )
