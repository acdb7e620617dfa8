"""Bytes to text: every codec Chinese pages come in, declared rightly, wrongly or not at all, cut, broken and
doubled."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import encoding
from corpus.encoding import UndecodableError, codec_of, decode, repair_mojibake, replace_surrogates, score
from corpus.whatwg import decode_as

SIMPLIFIED = "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？"
TRADITIONAL = "學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？"
READABLE_AS_GBK = "文海是一个工具，用来整理中文网页"  # its UTF-8 bytes are also GBK
LIES = [None, "utf-8", "gbk", "big5", "iso-8859-1", "no-such-charset"]


@pytest.mark.parametrize("declared", LIES)
@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (SIMPLIFIED, "utf-8"),
        (SIMPLIFIED, "gb2312"),
        (SIMPLIFIED, "gb18030"),
        (SIMPLIFIED, "utf-16"),
        (SIMPLIFIED, "utf-8-sig"),
        (TRADITIONAL, "utf-8"),
        (TRADITIONAL, "big5"),
        (TRADITIONAL, "gbk"),
    ],
)
def test_finds_the_codec_whatever_is_declared(text: str, codec: str, declared: str | None) -> None:
    if codec == "gb2312":
        text = text.replace("愠", "怒")  # not in GB 2312
    decoded = decode(text.encode(codec), declared)
    assert decoded.text == text
    assert not decoded.repaired


HZ = SIMPLIFIED.replace("愠", "怒").encode("hz")
ISO_2022_CN = b"\x1b$)A\x0e" + bytes(byte & 0x7F for byte in "学而时习之".encode("gb2312")) + b"\x0f abc"
EUC_TW = bytes.fromhex("f0d0c8d4d5ebdce4c4e6") * 9  # "學而時習之", as iconv writes it


@pytest.mark.parametrize("declared", [None, "hz-gb-2312", "iso-2022-cn", "euc-tw", "gb2312"])
@pytest.mark.parametrize("data", [b"Subject: \n" + HZ + b"\nend ~~", ISO_2022_CN, EUC_TW])
def test_what_browsers_do_not_read_is_refused(data: bytes, declared: str | None) -> None:
    if data != EUC_TW or declared != "gb2312":  # valid GB 2312 too, and whoever says so is believed
        with pytest.raises(UndecodableError):
            decode(data, declared)


@pytest.mark.parametrize("data", [b"~{ab~}", b"a ~{cd~} ~~", b"\x1b$)Z abc", b"ls ~{foo,bar}~"])
def test_ascii_that_only_looks_like_escapes_stays(data: bytes) -> None:
    assert decode(data).text == data.decode()


def test_utf_32_with_and_without_a_mark() -> None:
    for codec in ("utf-32", "utf-32-le", "utf-32-be"):
        assert decode(SIMPLIFIED.encode(codec)).text == SIMPLIFIED


WHATWG_NAMES = (
    "UTF-8 IBM866 ISO-8859-2 ISO-8859-3 ISO-8859-4 ISO-8859-5 ISO-8859-6 ISO-8859-7 ISO-8859-8 ISO-8859-8-I "
    "ISO-8859-10 "
    "ISO-8859-13 ISO-8859-14 ISO-8859-15 ISO-8859-16 KOI8-R KOI8-U macintosh windows-874 windows-1250 windows-1251 "
    "windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 windows-1257 windows-1258 x-mac-cyrillic GBK "
    "gb18030 Big5 EUC-JP ISO-2022-JP Shift_JIS EUC-KR UTF-16BE UTF-16LE"
)


def test_every_encoding_of_the_standard_has_a_codec() -> None:
    """All but `replacement` and `x-user-defined`, which are no encodings of text."""
    for name in WHATWG_NAMES.split():
        codec = codec_of(name)
        assert codec is not None and "a".encode(codec), name
    labels = {
        "chinese": "gb18030",
        "iso-ir-58": "gb18030",
        "x-x-big5": "big5hkscs",
        "ms_kanji": "cp932",
        "l1": "cp1252",
    }
    assert {label: codec_of(f' "{label.upper()}"') for label in labels} == labels


def test_a_label_names_its_superset() -> None:
    text = "朱镕基与陶喆，" + SIMPLIFIED
    page = b'<meta charset="gb2312">' + text.encode("gbk")
    assert decode(page).text.endswith(text)
    assert codec_of("GB2312") == codec_of("x-gbk") == "gb18030"
    assert codec_of("Big5-HKSCS") == "big5hkscs"
    assert codec_of("nonsense") is None


def test_meta_counts_below_the_header() -> None:
    page = b'<meta http-equiv="Content-Type" content="text/html; charset=gb2312">' + SIMPLIFIED.encode("gbk")
    assert decode(page).encoding == "gb18030"
    assert decode(page, "text/html; charset=gbk").encoding == "gb18030"


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("codec", ["utf-8", "gbk", "big5"])
def test_a_character_cut_off_at_the_end_is_left_out(codec: str, cut: int) -> None:
    text = TRADITIONAL * 3 if codec == "big5" else SIMPLIFIED * 3
    data = text.encode(codec)[:-cut]
    assert decode(data).text == text[:-1]


def test_a_few_bad_bytes_become_replacement_characters() -> None:
    data = bytearray((SIMPLIFIED * 100).encode())
    data[300] = 0xFF
    text = decode(bytes(data)).text
    assert 1 <= text.count("\ufffd") <= 3
    assert len(text.replace("\ufffd", "")) == len(SIMPLIFIED) * 100 - 1


@pytest.mark.parametrize(
    ("codec", "trails", "digest"),
    [
        # sha256 of the index of the WHATWG in UTF-8, in the order of its pointers, U+FFFD where it has none; GB18030's
        # with plane 2 for U+E816, E817, E818, E831, E83B and E855, Big5's with ／ and ＼ for A241 and A242.
        ("gb18030", (0x40, 0x7F, 0x80, 0xFF), "8ec146c36c2a7740ab9a4d8d4abf34c8c5e3a409e5538d4f18292442291c7181"),
        ("big5hkscs", (0x40, 0x7F, 0xA1, 0xFF), "cffdd4a754c98bd6a17de7e944d1c75bc1d7fcc3596ee62d33b67bc931729bf1"),
    ],
)
def test_every_pair_is_read_as_browsers_read_it(codec: str, trails: tuple[int, ...], digest: str) -> None:
    columns = [*range(*trails[:2]), *range(*trails[2:])]
    read = [decode_as(bytes((lead, trail)), codec, replace=True) for lead in range(0x81, 0xFF) for trail in columns]
    assert hashlib.sha256("".join(each[: each[0] == "\ufffd" or 2] for each in read).encode()).hexdigest() == digest


@pytest.mark.parametrize(
    ("codec", "data", "text"),
    [
        ("gb18030", b"\xb5...", "\ufffd..."),
        ("gb18030", b'\xb5"<\xff<\xb5\n\xb5', '\ufffd"<\ufffd<\ufffd\n\ufffd'),
        ("gb18030", b"\xb50a\xb5\xff\xb5\xc4", "\ufffd0a\ufffd的"),
        ("gb18030", b"\x8013\x81\x308<", "€13\ufffd08<"),
        ("gb18030", b"\xfe\x39\xfe\x39ok", "\ufffdok"),  # four bytes that nothing has
        ("big5hkscs", b"\xa4.\xa4<\xff\xa4\xa4\x80", "\ufffd.\ufffd<\ufffd中\ufffd"),
        ("big5hkscs", b"\xa3\xfe\xa4\xa4\xa1\x45", "\ufffd中‧"),
        ("utf-8", b"\xe5\xad.\xff\xe5\xad\xa6", "\ufffd.\ufffd学"),
    ],
)
def test_damage_takes_no_neighbour_with_it(codec: str, data: bytes, text: str) -> None:
    assert decode_as(data, codec, replace=True) == text


@pytest.mark.parametrize("declared", [None, "gb2312", "utf-8", "big5"])
@pytest.mark.parametrize("codec", ["gb18030", "big5", "utf-8"])
def test_cut_titles_do_not_refuse_a_page(codec: str, declared: str | None) -> None:
    text = TRADITIONAL if codec == "big5" else SIMPLIFIED
    article, cut = text.encode(codec) * 3, "春夏秋冬".encode(codec)[:-1]
    page = b"<p>" + article + b"</p>" + b"".join(b"<a href=%d>%b..</a>\n" % (index, cut) for index in range(20))
    lines = decode(page, declared).text.splitlines()
    assert lines[0] == f"<p>{text * 3}</p><a href=0>春夏秋\ufffd..</a>"
    assert lines[1:] == [f"<a href={index}>春夏秋\ufffd..</a>" for index in range(1, 20)]


def test_the_end_of_a_file_is_cut_only_inside_a_character() -> None:
    data = SIMPLIFIED.encode()
    assert decode(data + b"\xff\n").text == SIMPLIFIED + "\ufffd\n"
    assert decode(SIMPLIFIED.encode("gbk") + b"\x80", "gbk").text == SIMPLIFIED + "€"


def test_utf_16_with_a_mark_survives_a_bad_unit() -> None:
    data = b"\xff\xfe" + SIMPLIFIED.encode("utf-16-le") + b"\x00\xd8" + SIMPLIFIED.encode("utf-16-le")
    assert decode(data).text == f"{SIMPLIFIED}\ufffd{SIMPLIFIED}"


def test_a_mark_before_bad_bytes_another_encoding_or_doubled_text() -> None:
    text = SIMPLIFIED * 40
    for data in (text.encode() + b"\xff" + text.encode(), text.encode("gbk"), text.encode().decode("latin-1").encode()):
        assert decode(b"\xef\xbb\xbf" + data).text.replace("\ufffd", "") in (text, text * 2)


def test_nothing_plausible_is_an_error() -> None:
    with pytest.raises(UndecodableError, match="control"):
        decode(bytes(100))  # not UTF-32
    for data in (bytes(range(256)) * 20, b"\x89PNG\r\n\x1a\n" + bytes(range(128, 256)) * 9, b"\x00\x01\x02" * 100):
        with pytest.raises(UndecodableError):
            decode(data)


def test_other_languages_are_decoded_as_declared() -> None:
    assert decode("déjà vu à Besançon".encode("cp1252"), "windows-1252").text == "déjà vu à Besançon"
    assert decode(b"plain ASCII", "gbk").text == "plain ASCII"
    assert decode(b"plain ASCII " * 99 + b"\xa0<p>", "gbk").text.endswith(" \ufffd<p>")
    assert decode(b"").text == ""


@pytest.mark.parametrize("right", ["utf-8", "gbk", "big5"])
@pytest.mark.parametrize("wrong", ["latin-1", "windows-1252"])
def test_text_read_as_a_latin_codepage_is_restored(right: str, wrong: str) -> None:
    text = TRADITIONAL if right == "big5" else SIMPLIFIED
    garbled = text.encode(right).decode("latin-1")
    if wrong == "windows-1252":  # as browsers have it: the five bytes it lacks stay controls
        garbled = "".join(char.encode("latin-1").decode("cp1252", "ignore") or char for char in garbled)
    assert repair_mojibake(garbled) == text
    decoded = decode(garbled.encode())
    assert decoded.text == text and decoded.repaired


def test_big5_read_as_gbk_is_restored() -> None:
    text = "".join(char for char in TRADITIONAL * 3 if "\ufffd" not in char.encode("big5").decode("gb18030", "replace"))
    assert repair_mojibake(text.encode("big5").decode("gb18030")) == text


def test_utf8_read_as_gbk_is_restored() -> None:
    text = READABLE_AS_GBK
    garbled = text.encode().decode("gb18030")
    assert garbled != text
    assert repair_mojibake(garbled) == text
    assert decode(garbled.encode()).text == text


def test_sound_text_is_not_repaired() -> None:
    for text in (
        SIMPLIFIED,
        TRADITIONAL,
        "déjà vu à Besançon " * 20,
        "龘靐齉爩鱻麤",
        "plain",
        "ÀÉÎÕÜ" * 20,
        "日本語のテキスト" * 9,
    ):
        assert repair_mojibake(text) is None


def test_no_lone_surrogate_leaves() -> None:
    assert replace_surrogates("学\ud800而") == "学\ufffd而"
    assert replace_surrogates("学而😀") == "学而😀"
    assert (
        "\ud800" not in decode(b"\xff\xfe" + "学而".encode("utf-16-le") + b"\x00\xd8" + "时习".encode("utf-16-le")).text
    )


def test_score_separates_right_from_wrong() -> None:
    data = TRADITIONAL.encode("big5")
    assert score(TRADITIONAL) > 0.4 > 0.15 > score(data.decode("gb18030", "replace"))


han = st.text(st.sampled_from(sorted(encoding.COMMON_HAN)), min_size=20, max_size=80)


@given(st.binary(max_size=400), st.sampled_from(LIES))
def test_any_bytes_give_text_or_undecodable(data: bytes, declared: str | None) -> None:
    with contextlib.suppress(UndecodableError):
        decode(data, declared).text.encode()


def test_real_legacy_files(test_data: Path) -> None:
    """Undeclared to us: the score and the detectors must find it; the files are real pages of the 1990s and 2000s."""
    entries = [json.loads(line) for line in (test_data / "legacy" / "manifest.jsonl").read_text("utf-8").splitlines()]
    wrong = []
    for entry in entries:
        data = (test_data / "legacy" / entry["file"]).read_bytes()
        codec = {"big5": "big5hkscs"}.get(entry["encoding"], entry["encoding"])
        expected = None if codec == "euc_tw" else decode_as(data, codec)  # None: refused
        try:
            found = decode(data).text
        except UndecodableError:
            found = None
        if found != expected:
            wrong.append(entry["file"])
    assert not wrong


def test_bytes_that_are_the_text_need_not_be_encoded_again() -> None:
    data = "学而时习之，不亦说乎？".encode()
    assert decode(data + b"\n").utf8 == data + b"\n"
    cut = decode(data * 3 + data[:-1])  # a character that was cut off at the end is no part of the text
    assert cut.encoding == "utf-8" and cut.utf8 is None and cut.text.encode() == data * 3 + data[:-3]
    assert decode(data, "gb18030").utf8 is None and decode("学而时习之，不亦说乎？".encode("gbk")).utf8 is None
