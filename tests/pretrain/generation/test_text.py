"""Text as it comes: whole characters, nothing from a stop string on, however it is cut into tokens."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pretrain.generation.generate import TextStream

PIECES = [bytes([value]) for value in range(256)] + ["海".encode(), "文海".encode(), "。\n".encode(), b""]


def stream(pieces: list[bytes], stops: list[str] | None = None) -> tuple[list[str], bool]:
    """What comes of pieces up to a stop string, without what is empty; and whether one came."""
    text = TextStream(pieces.__getitem__, stops or [])
    parts = []
    for token in range(len(pieces)):
        if not text.stopped:
            parts.append(text.take(token))
    parts.append(text.end())
    return [part for part in parts if part], text.stopped


def cut(raw: bytes, data: st.DataObject) -> list[bytes]:
    """The bytes in pieces, anywhere."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)))) | {0, len(raw)})
    return [raw[start:stop] for start, stop in pairwise(cuts)]


@given(st.text(max_size=20), st.data())
def test_streams_hold_whole_characters_and_add_up(text: str, data: st.DataObject) -> None:
    """Any way to cut the bytes of a text into tokens: no U+FFFD that the text has not, nothing lost."""
    parts, _ = stream(cut(text.encode(), data))
    assert "".join(parts) == text
    assert all(part in text for part in parts)


def test_bytes_that_are_no_character_are_replaced_once_it_is_certain() -> None:
    assert stream([b"\xe6", b"\xb5"])[0] == ["\ufffd"], "the text ended inside a character"
    assert stream([b"\xe6", "海".encode()])[0] == ["\ufffd海"]
    assert stream([b"\xff", "海".encode()])[0] == ["\ufffd", "海"]


@given(st.text("ab海", max_size=12), st.lists(st.text("ab海", min_size=1, max_size=4), max_size=3), st.data())
def test_a_text_ends_before_the_stop_string_that_is_complete_first(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    expected, stopped = text, False
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            expected, stopped = text[: end - max(map(len, complete))], True
            break
    parts, found = stream(cut(text.encode(), data), stops)
    assert ("".join(parts), found) == (expected, stopped)


def test_what_may_be_the_beginning_of_a_stop_string_is_held_back_and_nothing_else() -> None:
    pieces = [piece.encode() for piece in ("一", "问", "答", "问：", "不来")]
    assert stream(pieces, ["问：什么"]) == (["一", "问答", "问：不来"], False)
    assert stream([*pieces[:4], "什么时候".encode()], ["问：什么"]) == (["一", "问答"], True)
    assert stream([b"a", b"a", b"a", b"b"], ["aab"]) == (["a"], True)


def test_a_beginning_of_a_stop_string_at_the_end_is_given() -> None:
    assert stream(["海".encode(), "问".encode()], ["问："]) == (["海", "问"], False)
    assert stream(["海".encode(), b"\xe6"], ["\ufffd。"]) == (["海", "\ufffd"], False)
    assert stream(["海".encode(), b"\xe6"], ["\ufffd"]) == (["海"], True)
