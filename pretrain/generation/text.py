"""From tokens to text as they come: whole characters, and nothing from a stop string on.

A token may end inside a character, and a stop string may begin in one token and end in another: what is not certain yet
is held back. Both are decided character by character, so that the text does not depend on how it was cut into tokens.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from corpus.engine.errors import UsageError


class TextStream:
    """The text of one row of tokens."""

    def __init__(self, piece_bytes: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        """`piece_bytes` gives the bytes of a token, `Tokenizer.piece_bytes`.

        Raises:
            UsageError: a stop string is empty.
        """
        if not all(stops):
            raise UsageError("a stop string is empty: nothing would be generated. Leave it out")
        self.stopped = False  # a stop string came: no text follows
        self._piece_bytes = piece_bytes
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def take(self, token: int) -> str:
        """The text that is certain with one more token; bytes that can become no character are U+FFFD."""
        return self._release(self._decoder.decode(self._piece_bytes(token)))

    def end(self) -> str:
        """What was held back; no token follows. Bytes of a cut character are U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True))
        text, self._held = text + self._held, ""
        return text

    def _release(self, new: str) -> str:
        """Add text and take what can no longer be part of a stop string."""
        if self.stopped:
            return ""
        text = self._held + new
        if not self._stops:
            return text
        # the stop that is complete first, as if characters came one by one; of several that end there, the longest
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        first_held = len(text) - max(_overlap(text, stop) for stop in self._stops)
        self._held = text[first_held:]
        return text[:first_held]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text are a beginning of the stop string.

    >>> _overlap("白日依山", "山尽"), _overlap("aab", "aabaab"), _overlap("", "x")
    (1, 3, 0)
    """
    return next(size for size in range(min(len(stop) - 1, len(text)), -1, -1) if text.endswith(stop[:size]))
