"""A SentencePiece model as the `tokenizer.json` of Hugging Face's tokenizers library, and what transformers is told of
it.

Pieces are written with real spaces, so nothing rewrites the text on its way in: U+2581 is a character without a piece
and is spelled in its bytes, here as in `tokenizer.model`. Texts are split as there, too: after newlines, and a line
every 65,536 characters. Between two splits:

- BPE: SentencePiece joins any two neighbours that make a piece, the piece of the lowest id first. So each way to split
  a piece into two others is a merge, in the order of the pieces. A user's symbol is an added token, found before the
  text is split: the 65,536 characters of a longer line are counted from behind it, which can change the ids at that
  place.
- Unigram: the same search. Names of bytes and control symbols are entries of the same table there, so that a text
  could match them; their score is one that no path of pieces falls to. Characters without a piece score still less, so
  texts are split around those that are in such a name. A user's symbol has SentencePiece's score of it.

Control symbols are no added tokens of `tokenizer.json`: tokenizers would find them in any text. transformers learns
them from `tokenizer_config.json`, with `split_special_tokens`, which keeps them from being found.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import floor
from typing import Any

from corpus.engine.errors import WenhaiError
from tokenizer.kernels.lexicon import Lexicon, read_lexicon
from tokenizer.model import CHUNK_CHARACTERS, EOD_PIECE, SPACE_MARK, Tokenizer

UNKNOWN_ID = 0
USER_SCORE = -0.1  # of a user's symbol in SentencePiece's Unigram
NO_MAX_LENGTH = int(1e30)  # what transformers writes where there is none
LINES = rf"[^\n]{{1,{CHUNK_CHARACTERS}}}\n?|\n"  # a newline joins nothing, so it may stay with its line


class ExportError(WenhaiError):
    """A model cannot be written for another library with the same ids. Exit code 1."""


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of `tokenizer.json`.

    Raises:
        ExportError: the model has pieces that the format cannot hold.
    """
    lexicon = read_lexicon(tokenizer)
    if lexicon.unused:
        raise ExportError(f"{tokenizer.path}: has pieces that are marked as unused; other libraries would use them.")
    if is_bpe(tokenizer):
        model, added, patterns = _bpe(tokenizer, lexicon), lexicon.user, [LINES]
    else:
        model, added, patterns = _unigram(tokenizer, lexicon), {}, [LINES, *_pieceless(tokenizer, lexicon)]
    parts = [  # what matches is one, and so is what is between
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id} | added_token(symbol, special=False) for symbol, id in added.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": model,
    }


def tokenizer_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of `tokenizer_config.json`, for transformers 4 and 5."""
    controls = {id: tokenizer.piece(id) for id in range(tokenizer.vocab_size) if tokenizer.is_control(id)}
    others = [piece for id, piece in controls.items() if id not in (UNKNOWN_ID, tokenizer.eod)]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {str(id): added_token(piece, special=True) for id, piece in controls.items()},
        "eos_token": EOD_PIECE,
        "unk_token": tokenizer.piece(UNKNOWN_ID),
        "additional_special_tokens": others,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": NO_MAX_LENGTH,
    }


def added_token(content: str, *, special: bool) -> dict[str, Any]:
    """What both files say of a token that the model itself does not make."""
    spaces = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"content": content, **spaces, "special": special}


def is_bpe(tokenizer: Tokenizer) -> bool:
    """Whether the scores are the order of merges: 0, -1, -2, ... Logarithms of probabilities are not."""
    scores = [tokenizer.processor.get_score(id) for id in sorted(read_lexicon(tokenizer).normal.values())]
    return scores == [-rank for rank in range(len(scores))]


def counted_apart(tokenizer: Tokenizer) -> list[str]:
    """The symbols behind which the characters of a long line are counted anew, so that it may be cut elsewhere."""
    return list(read_lexicon(tokenizer).user) if is_bpe(tokenizer) else []


def _bpe(tokenizer: Tokenizer, lexicon: Lexicon) -> dict[str, Any]:
    pieces = sorted(lexicon.normal, key=lexicon.normal.__getitem__)
    splits = [(piece[:at], piece[at:]) for piece in pieces for at in range(1, len(piece))]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": {name: id for id, name in enumerate(_names(tokenizer))},
        "merges": [pair for pair in splits if pair[0] in lexicon.normal and pair[1] in lexicon.normal],
    }


def _unigram(tokenizer: Tokenizer, lexicon: Lexicon) -> dict[str, Any]:
    names = _names(tokenizer)
    least = min(tokenizer.processor.get_score(id) for id in lexicon.normal.values())
    scores = [floor(least) * (1.0 + max(map(len, names)))] * len(names)
    for id in lexicon.normal.values():
        scores[id] = tokenizer.processor.get_score(id)
    for id in lexicon.user.values():
        scores[id] = USER_SCORE
    return {
        "type": "Unigram",
        "unk_id": UNKNOWN_ID,
        "vocab": list(zip(names, scores, strict=True)),
        "byte_fallback": True,
    }


def _pieceless(tokenizer: Tokenizer, lexicon: Lexicon) -> list[str]:
    """A pattern of the characters that names of ids hold, but no piece and no user's symbol; none if there are none."""
    ids = set(range(tokenizer.vocab_size)) - {*lexicon.normal.values(), *lexicon.user.values()}
    characters = {character for id in ids for character in tokenizer.piece(id)}
    characters -= {character for piece in (*lexicon.normal, *lexicon.user) for character in piece}
    return [f"[{''.join(map(re.escape, sorted(characters)))}]"] if characters else []


def _names(tokenizer: Tokenizer) -> list[str]:
    """What each id is called: pieces with spaces as spaces, bytes <0x00> to <0xFF>."""
    names = [tokenizer.piece(id).replace(SPACE_MARK, " ") for id in range(tokenizer.vocab_size)]
    for one, other in pairwise(sorted(names)):
        if one == other:
            raise ExportError(f"{tokenizer.path}: has two pieces {one!r}, and the format has one id for a name.")
    return names
