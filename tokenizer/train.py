"""Trains a SentencePiece vocabulary that gives back every text exactly; equal samples give equal bytes.

The recipe and why: identity normalisation (the default rewrites ，！ to ,! and drops newlines: 13 of 16 test strings do
not come back), no dummy prefix, whitespace kept, bytes for what has no piece. Texts go in through an iterator and the
model comes out as bytes, because a file name would be embedded in it. `num_threads` is a constant: it changes a
Unigram's vocabulary. SentencePiece skips a sentence above 4,192 bytes and one with U+2585, silently: text is cut at
control characters, U+2581 and U+2585, and after at most 1,000 characters, behind a punctuation mark where one is near.
Newline and tab are pieces that merge with nothing.

Ids: 0 unknown, 1 <|endoftext|>, control symbols, reserved ids, user symbols, 256 bytes, pieces. Where pieces are
rejected, more are trained than asked for, and the best of the others fill the vocabulary (see `tokenizer.pieces`).

11 MB of mixed Chinese, vocabulary 16,000, on one 2.25 GHz core: BPE 2.7 s, Unigram 40 s (`python -m tokenizer run`).
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import chain
from typing import Any, ClassVar

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.versions import data_digest, version_of
from tokenizer.config import TokenizerConfig, control_pieces
from tokenizer.model import EOD_PIECE, SPACE_MARK, Tokenizer
from tokenizer.pieces import TooSmallError, Trimmed, on_grid, parse_model, trim

MAX_SENTENCE_CHARACTERS = 1000  # at most 4,000 bytes: below the 4,192 above which SentencePiece skips
CUT_CHARACTERS = 200  # a cut is at the last punctuation mark of so many characters, so seldom inside a word
REPORT_CHARACTERS = 1_000_000
UNKNOWN_ID, EOD_ID, ABSENT_ID = 0, 1, -1
REQUIRED_CHARACTERS = SPACE_MARK + "\n\t"
WORD_MARK = "\x1f"  # a control character, so never inside a sentence
SILENT = 2  # log level: errors only
MARGIN = 16  # one piece more for each so many, and another 64, where some may be rejected
MARGIN_GROWTH = 4  # where those were too few
MAX_MARGIN = 16  # times the vocabulary: whoever rejects nearly everything gets a smaller one
_BREAKS = re.compile("[\x00-\x1f\x7f\u2581\u2585]+")
_TO_LAST_MARK = re.compile("(?s:.*)[，。！？；：、…!?; ]")


def train(texts: Iterable[str], config: TokenizerConfig) -> bytes:
    """The bytes of a `.model` trained on `texts`; they depend on the texts, their order and `config` alone.

    Where the texts cannot fill `vocab_size`, the vocabulary is as large as they allow.

    Raises:
        WenhaiError: no text at all, or `vocab_size` is too small for the characters that must have a piece.
    """
    return train_without_rejected(list(texts), config).model


def train_without_rejected(texts: Sequence[str], config: TokenizerConfig) -> Trimmed:
    """A trained model, and which pieces were kept out of it.

    It is smaller than `vocab_size` where the texts have no more pieces, or what is rejected leaves too few of 16 times
    as many.
    """
    size = config.vocab_size
    if config.reject == "none" and not config.reject_pieces:
        model = _train(texts, config, size)
        return Trimmed(model, len(parse_model(model).pieces), {}, [])
    margin = size // MARGIN + 64
    while True:
        model = _train(texts, config, size + margin)
        try:
            trimmed = trim(model, size, lambda pieces: rejected_pieces(pieces, texts, config))
        except TooSmallError as error:
            raise WenhaiError(_too_small(error.needed, config)) from None
        exhausted = len(parse_model(model).pieces) < size + margin  # the texts have no more
        margin *= MARGIN_GROWTH
        if trimmed.vocab_size == size or exhausted or margin > MAX_MARGIN * size:
            return trimmed


def rejected_pieces(pieces: Sequence[str], texts: Sequence[str], config: TokenizerConfig) -> dict[str, str]:
    """The pieces that the recipe does not want, as the vocabulary spells them, with the reason."""
    from tokenizer.report import suspicious_pieces

    found = suspicious_pieces(pieces, texts) if config.reject == "suspicious" else {}
    if config.reject_pieces:
        named = re.compile("|".join(map(re.escape, config.reject_pieces)))
        for piece in pieces:
            if held := named.search(piece.replace(SPACE_MARK, " ")):
                found[piece] = f"recipe: {held[0]}"
    return found


def _train(texts: Iterable[str], config: TokenizerConfig, vocab_size: int) -> bytes:
    """SentencePiece's own training."""
    import sentencepiece

    model, lines = io.BytesIO(), sentences(texts)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=segment(lines, config.user_symbols) if config.segmentation == "jieba" else lines,
            pretokenization_delimiter=WORD_MARK if config.segmentation == "jieba" else "",
            model_writer=model,
            model_type=config.model_type,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=config.character_coverage,
            split_digits=config.split_digits,
            num_threads=config.num_threads,
            control_symbols=control_pieces(config),
            user_defined_symbols=list(config.user_symbols),
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            allow_whitespace_only_pieces=True,
            byte_fallback=True,
            required_chars=REQUIRED_CHARACTERS,
            shuffle_input_sentence=False,
            unk_id=UNKNOWN_ID,
            eos_id=EOD_ID,
            eos_piece=EOD_PIECE,
            bos_id=ABSENT_ID,
            pad_id=ABSENT_ID,
            minloglevel=SILENT,
        )
    except RuntimeError as error:
        raise WenhaiError(_explain(str(error), config)) from error
    return on_grid(model.getvalue()) if config.model_type == "unigram" else model.getvalue()


def sentences(texts: Iterable[str]) -> Iterator[str]:
    """What SentencePiece sees of texts: lines of at most 1,000 characters.

    >>> list(sentences(["学而时习之\\n\\n不亦说乎\\t▁", ""]))
    ['学而时习之', '不亦说乎']
    """
    for text in texts:
        for line in _BREAKS.split(text):
            start = 0
            while start < len(line):
                stop = start + MAX_SENTENCE_CHARACTERS
                if stop < len(line) and (found := _TO_LAST_MARK.match(line, stop - CUT_CHARACTERS, stop)):
                    stop = found.end()
                yield line[start:stop]
                start = stop


def segment(lines: Iterable[str], symbols: Sequence[str] = ()) -> Iterator[str]:
    """Sentences with `WORD_MARK` between jieba's words; a symbol is a word.

    jieba's HMM is off: it is quadratic on long runs of one character and guesses names that are none.

    >>> [line.split(WORD_MARK) for line in segment(["他来到北京<n>清华大学"], ["<n>"])]
    [['他', '来到', '北京', '<n>', '清华大学']]
    """
    import jieba

    from corpus.engine.durable import private_cache

    jieba.setLogLevel(logging.WARNING)
    jieba.dt.tmp_dir = str(private_cache())  # its cache is a marshal file: never in a folder others can write
    longest_first = sorted(symbols, key=lambda symbol: -len(symbol))  # as SentencePiece finds them
    symbol = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if symbols else None
    for line in lines:
        parts = symbol.split(line) if symbol else [line]  # text, symbol, text, ..., text
        words = (jieba.cut(part, HMM=False) if place % 2 == 0 else [part] for place, part in enumerate(parts))
        yield WORD_MARK.join(chain.from_iterable(words))


@dataclass(frozen=True)
class TokenizerStage(Stage):
    """The sample -> `model/tokenizer.model` and `report/tokenizer.json`, `.html`; one task."""

    recipe: TokenizerConfig

    name: ClassVar[str] = "tokenizer"
    version: ClassVar[int] = 4
    upstream: ClassVar[tuple[str, ...]] = ("sample", "shares")

    def config(self) -> dict[str, Any]:
        found = self.recipe.of_stage(self.name) | {"sentencepiece": version_of("sentencepiece")}
        if self.recipe.segmentation == "jieba":
            found["jieba"] = [version_of("jieba"), data_digest("jieba", ".txt")]
        if self.recipe.reject == "suspicious":
            found["unicode"] = unicodedata.unidata_version
            words = resources.files("tokenizer.report").joinpath("spam_words.txt").read_bytes()
            found["spam_words"] = hashlib.sha256(words).hexdigest()
        return found

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        (shares,) = upstream["shares"].files("shares")
        return [Task("tokenizer", (shares, *upstream["sample"].files()))]

    def run(self, task: Task, out: Output) -> Counts:
        from tokenizer.report import vocabulary_report
        from tokenizer.report.page import report_page
        from tokenizer.sample import by_source, cut_sample, read_sample, texts_of_sources, traditional_ratio

        shares, *files = task.inputs
        sample, counts = cut_sample(read_sample(files), self.recipe.sample_bytes)
        trained = train_without_rejected(sample["text"].to_pylist(), self.recipe)
        with out.create("model/tokenizer.model") as path:
            path.write_bytes(trained.model)
            report = vocabulary_report(Tokenizer(path), texts_of_sources(sample, REPORT_CHARACTERS))
        report |= {"vocab_size_asked": self.recipe.vocab_size, "sample_documents": counts.documents_out}
        report |= {"sample_bytes": counts.bytes_out, "sample_by_source": by_source(sample, shares)}
        if self.recipe.traditional_ratio is not None:
            report["sample_traditional_ratio"] = traditional_ratio(sample)
        report |= {"rejected_pieces": dict(trained.rejected), "unreachable_pieces": list(trained.unreachable)}
        with out.create("report/tokenizer.json") as path:
            path.write_bytes(durable.canonical_json(report) + b"\n")
        with out.create("report/tokenizer.html") as path:
            title = f"{self.recipe.model_type}, {trained.vocab_size:,} pieces"
            path.write_text(report_page(report, title), encoding="utf-8")
        return counts


def _explain(message: str, config: TokenizerConfig) -> str:
    """SentencePiece's assertion in words a person can act on."""
    if too_small := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return _too_small(int(too_small[2]), config)
    if "sentences_.empty()" in message or "corpus" in message.lower():
        return "there is no text to train a tokenizer on. Check that the text stage kept documents."
    return f"SentencePiece refused to train: {message.strip()}"


def _too_small(needed: int, config: TokenizerConfig) -> str:
    return (
        f"tokenizer.vocab_size = {config.vocab_size} is too small: bytes, control ids, symbols and the characters that "
        f"character_coverage = {config.character_coverage} asks for are {needed} pieces. Raise vocab_size or lower "
        "character_coverage."
    )
