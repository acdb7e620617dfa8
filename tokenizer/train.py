"""Trains a SentencePiece vocabulary that gives back every text exactly; equal samples give equal bytes.

The recipe and why: identity normalisation (the default rewrites ，！ to ,! and drops newlines: 13 of 16 test strings do
not come back), no dummy prefix, whitespace kept, bytes for what has no piece. Texts go in through an iterator and the
model comes out as bytes, because a file name would be embedded in it. `num_threads` is a constant: it changes a
Unigram's vocabulary. SentencePiece skips a sentence above 4,192 bytes and one with U+2585, silently: text is cut at
control characters, U+2581 and U+2585, and after at most 1,000 characters, behind a punctuation mark where one is near.
Newline and tab are pieces that merge with nothing.

11 MB of mixed Chinese, vocabulary 16,000, on one 2.25 GHz core: BPE 2.7 s, Unigram 40 s (`python -m tokenizer run`).
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from tokenizer.config import TokenizerConfig, training
from tokenizer.model import EOD_PIECE, SPACE_MARK, Tokenizer
from tokenizer.vocabulary import vocabulary_report

MAX_SENTENCE_CHARACTERS = 1000  # at most 4,000 bytes: below the 4,192 above which SentencePiece skips
CUT_CHARACTERS = 200  # a cut is at the last punctuation mark of so many characters, so seldom inside a word
REPORT_CHARACTERS = 1_000_000
UNKNOWN_ID, EOD_ID, ABSENT_ID = 0, 1, -1
REQUIRED_CHARACTERS = SPACE_MARK + "\n\t"
WORD_MARK = "\x1f"  # a control character, so never inside a sentence
SILENT = 2  # log level: errors only
_BREAKS = re.compile("[\x00-\x1f\x7f\u2581\u2585]+")
_TO_LAST_MARK = re.compile("(?s:.*)[，。！？；：、…!?; ]")


def train(texts: Iterable[str], config: TokenizerConfig) -> bytes:
    """The bytes of a `.model` trained on `texts`; they depend on the texts, their order and `config` alone.

    Where the texts cannot fill `vocab_size`, the vocabulary is as large as they allow.

    Raises:
        WenhaiError: no text at all, or `vocab_size` is too small for the characters that must have a piece.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=segment(sentences(texts)) if config.segmentation == "jieba" else sentences(texts),
            pretokenization_delimiter=WORD_MARK if config.segmentation == "jieba" else "",
            model_writer=model,
            model_type=config.model_type,
            vocab_size=config.vocab_size,
            hard_vocab_limit=False,
            character_coverage=config.character_coverage,
            split_digits=config.split_digits,
            num_threads=config.num_threads,
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
    return model.getvalue()


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


def segment(lines: Iterable[str]) -> Iterator[str]:
    """Sentences with `WORD_MARK` between jieba's words.

    jieba's HMM is off: it is quadratic on long runs of one character and guesses names that are none.

    >>> [line.split(WORD_MARK) for line in segment(["他来到北京清华大学"])]
    [['他', '来到', '北京', '清华大学']]
    """
    import jieba

    from corpus.engine.durable import private_cache

    jieba.setLogLevel(logging.WARNING)
    jieba.dt.tmp_dir = str(private_cache())  # its cache is a marshal file: never in a folder others can write
    for line in lines:
        yield WORD_MARK.join(jieba.cut(line, HMM=False))


@dataclass(frozen=True)
class TokenizerTraining(Stage):
    """The sample -> `model/tokenizer.model` and `report/tokenizer.json`; one task."""

    recipe: TokenizerConfig

    name: ClassVar[str] = "tokenizer"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("sample",)

    def config(self) -> dict[str, Any]:
        return training(self.recipe)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task("tokenizer", tuple(upstream["sample"].files()))]

    def run(self, task: Task, out: Output) -> Counts:
        texts, counts = self._sample(task)
        with out.create("model/tokenizer.model") as path:
            path.write_bytes(train(texts, self.recipe))
            report = vocabulary_report(Tokenizer(path), _first_characters(texts))
        report |= {"vocab_size_asked": self.recipe.vocab_size, "sample_documents": counts.documents_out}
        report |= {"sample_bytes": counts.bytes_out}
        with out.create("report/tokenizer.json") as path:
            path.write_bytes(durable.canonical_json(report) + b"\n")
        return counts

    def _sample(self, task: Task) -> tuple[list[str], Counts]:
        """The sampled texts in the order of their keys, as many as fit into `sample_bytes`."""
        from tokenizer.sample import read_sample

        texts = read_sample(task.inputs)
        sizes = np.array([len(text.encode()) for text in texts], dtype=np.int64)
        kept = int(np.searchsorted(np.cumsum(sizes), self.recipe.sample_bytes, side="right"))
        kept = max(kept, min(1, len(texts)))  # one document may be larger than the sample
        counts = Counts(len(texts), kept, int(sizes.sum()), int(sizes[:kept].sum()))
        if kept < len(texts):
            counts.drop("sample.full", len(texts) - kept)
        return texts[:kept], counts


def _first_characters(texts: list[str]) -> list[str]:
    """The first texts, about a million characters of them."""
    total, found = 0, []
    for text in texts:
        if total >= REPORT_CHARACTERS:
            break
        found.append(text)
        total += len(text)
    return found


def _explain(message: str, config: TokenizerConfig) -> str:
    """SentencePiece's assertion in words a person can act on."""
    if too_small := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return (
            f"tokenizer.vocab_size = {config.vocab_size} is too small: bytes, control ids and the characters that "
            f"character_coverage = {config.character_coverage} asks for are {too_small[2]} pieces. Raise vocab_size or "
            "lower character_coverage."
        )
    if "sentences_.empty()" in message or "corpus" in message.lower():
        return "there is no text to train a tokenizer on. Check that the text stage kept documents."
    return f"SentencePiece refused to train: {message.strip()}"
