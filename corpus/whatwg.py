"""GB18030 and Big5 as browsers read them: Python's codecs, brought to the indexes and decoders of the WHATWG.

Python's GB18030 is that of 2000: 20 characters come out as private use that the index (GB 18030-2022, and A3A0 as the
space that pages mean by it) has elsewhere, and so do six that Unicode encodes in plane 2. Its Big5-HKSCS lacks 192
pairs and reads nine marks as other ones (A145, the dot between names, as a bullet). CP936's 80 is the euro sign. Only
bytes that Python refuses reach an error handler, and one search finds what it reads otherwise; the rest is its C
decoder.

Derived from index-gb18030.txt and index-big5.txt of https://encoding.spec.whatwg.org, where Python 3.11 differs. A241
and A242 stay ／ and ＼: Python has one character for two codes there, and the index small forms of those.
"""

from __future__ import annotations

import codecs
import re
from functools import cache

# Runs of characters behind the pair that the first one has, as hexadecimal digits.
_BIG5_MISSING = (
    "877a㡵𡵓𣚞𦀡㻬𥣞㫵竼龗𤅡𨤍𣇪𠪊𣉞䌊蒄龖鐯䤰蘓墖靊鈘秐稲晠権袝瑌篅枂稬剏遆㓦珄𥶹瓆鿇垳䤯呌䄱𣚎堘穲𧭥讏䚮𦺈䆁𥶙箮𢒼鿈𢓁𢓉𢓌鿉蔄𣖻䂴鿊䓡𪷿拁灮鿋"
    "8e69箸8e6f簆8e7e糎8eab緒8eb4縝8ecd者8ed0耨8f57菁8f69蒨8f6e萏8fcb覦覩8ffe起906d都907a銹90dc靜90f1響91bf鼖9244蔃92af兙兛兝兞92c8鍮"
    "92d1瑹9447浧94ca禛95d9邗9644靝96ed瀞96fc嬨9b76爁9b78矗9b7b纇9bc6駖9bde釔9bec惞9bf6澶9c42輶9c53侻9c62營9c68鄄9c6b鷰9c77菏"
    "9cbc尐秣9cd0婧9d57輋9d5a筑9dc4拐9ea9恢9eef痹9efd汊9f60鬮9f66鼗9fcb僭9fd8弌a063蠏a077拎a0d5瑨a0df煢a0e4牐"
    "a3c0␀␁␂␃␄␅␆␇␈␉␊␋␌␍␎␏␐␑␒␓␔␕␖␗␘␙␚␛␜␝␞␟␡€c6cf廴c6d3无c6d5癶c6d7隶c6de〃仝fa5f倩fa66偽fabd包fac5卄fad5卿fb48嘅"
    "fbb8婷fbf3幵fbf9廐fc4f彘fc6c悤fcb9撐fce2晴fcf1杞fdb7沜渝fdbb港fdf1煮fe52猪fe6f瑜feaa瓩fedd砉"
)
_GB18030_PRIVATE = (
    "\ue5e5\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue7c7\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854"
    "\ue864"
)
_READ_OTHERWISE = {
    "gb18030": dict(zip(_GB18030_PRIVATE, "\u3000︐︒︑︓︔︕︖︗︘︙ḿ龴龵龶龷龸龹龺龻", strict=True))
    | dict(zip("\ue816\ue817\ue818\ue831\ue83b\ue855", "𠂇𠂉𠃌𡗗𢦏𤇾", strict=True)),
    "big5hkscs": dict(zip("•､‾∼♁☉¥¢£", "‧﹑¯～⊕⊙￥￠￡", strict=True)),
}
_FOUR_BYTES = re.compile(rb"[\x81-\xfe][0-9][\x81-\xfe][0-9]")
_OTHERWISE = {codec: re.compile(f"[{''.join(found)}]") for codec, found in _READ_OTHERWISE.items()}


def decode_as(data: bytes, codec: str, *, replace: bool = False) -> str:
    """Decode with any of our codecs (`corpus.encoding.codec_of`); `replace` makes U+FFFD of what is bad.

    A bad byte takes no other with it that may stand for itself: ASCII behind a lead byte whose second half was cut off
    stays, as the standard has it.

    >>> decode_as("仅售".encode("gbk") + b"\\x80" + "9，统".encode("gbk") + b"\\xbc<", "gb18030", replace=True)
    '仅售€9，统\ufffd<'

    Raises:
        LookupError: no such codec.
        ValueError: bad bytes without `replace`.
    """
    if codec not in _READ_OTHERWISE:
        return data.decode(codec, "replace" if replace else "strict")
    text = data.decode(codec, "whatwg.replace" if replace else "whatwg.strict")
    otherwise = _READ_OTHERWISE[codec]
    return _OTHERWISE[codec].sub(lambda found: otherwise[found[0]], text)


@cache
def _big5_missing() -> dict[bytes, str]:
    table: dict[bytes, str] = {}
    for pair, characters in re.findall("([0-9a-f]{4})([^0-9a-f]+)", _BIG5_MISSING):
        lead, trail = bytes.fromhex(pair)
        for step, character in enumerate(characters):
            after = trail + step
            table[bytes((lead, after if after < 0x7F or trail > 0x7E else after + 0x22))] = character
    return table


def _strict(error: UnicodeError) -> tuple[str, int]:
    """What the standard reads where Python does not, with the place to go on from."""
    assert isinstance(error, UnicodeDecodeError)
    found = _read(error.encoding, error.object[error.start : error.start + 2])
    if found is None:
        raise error
    return found[0], error.start + found[1]


def _replace(error: UnicodeError) -> tuple[str, int]:
    """`_strict`, and U+FFFD for a lead byte with what follows it unless that is ASCII, or for a byte that is no
    lead."""
    assert isinstance(error, UnicodeDecodeError)
    codec, start = error.encoding, error.start
    code = error.object[start : start + 4]
    if found := _read(codec, code[:2]):
        return found[0], start + found[1]
    if codec == "gb18030" and _FOUR_BYTES.match(code):  # nothing has it
        return "\ufffd", start + 4
    return "\ufffd", start + (2 if 0x80 < code[0] < 0xFF and code[1:2] >= b"\x80" else 1)


def _read(codec: str, pair: bytes) -> tuple[str, int] | None:
    """A character and its bytes."""
    if codec == "gb18030":
        return ("€", 1) if pair[0] == 0x80 else None
    character = _big5_missing().get(pair)
    return (character, 2) if character else None


codecs.register_error("whatwg.strict", _strict)
codecs.register_error("whatwg.replace", _replace)
