"""EUC-TW, which Python cannot decode: planes 1 and 2 of CNS 11643 by way of Big5, which orders the same characters.

Big5's two levels are CNS planes 1 and 2 in nearly the same order, so the table is 92 runs (CNS index, Big5 index,
length), worked out by comparing with glibc's converter: all 13,461 characters come out as it has them. Further planes,
which pages do not use, and 34 symbols are refused.
"""

from __future__ import annotations

from functools import cache

ROW = 94  # characters a row of CNS 11643
BIG5_ROW = 157
PLANE_1 = b"\x8e\xa1"
PLANE_2 = b"\x8e\xa2"

_PLANE_1_RUNS = (
    "0:0:5 6:6:8 15:15:6 21:23:2 24:22:1 29:29:44 73:74:1 74:73:1 75:75:22 98:98:1 100:100:27 127:128:1 128:127:1 "
    "129:129:19 148:149:1 149:148:1 150:150:4 155:21:1 156:158:2 160:160:1 162:162:1 165:165:69 282:234:29 312:264:1 "
    "314:266:142 470:6101:20 3290:471:1412 4702:1884:424 5126:1883:1 5127:2308:1876 7003:4571:1 7004:4184:387 "
    "7391:4572:525 7916:5286:1 7917:5097:105 8023:5203:83 8106:5287:84 8190:5517:1 8191:5371:54 8245:5426:1 "
    "8246:5425:1 8247:5427:90 8337:5518:354"
)
_PLANE_2_RUNS = (
    "0:6280:10 10:6291:33 43:6372:1 44:6324:48 92:6373:46 138:6586:1 139:6419:167 306:6587:1840 2146:9074:1 "
    "2147:8428:108 2255:8537:537 2792:8427:1 2793:9075:100 2893:8536:1 2894:9175:399 3293:9575:1637 4930:11761:1 "
    "4931:11212:146 5077:11899:1 5078:11358:287 5365:12508:1 5366:11645:116 5482:11762:137 5619:11900:104 "
    "5723:12425:1 5724:12004:222 5946:12227:198 6144:12426:82 6226:12509:86 6312:12226:1 6313:12595:8 6321:12604:153 "
    "6474:12758:56 6530:13114:1 6531:12814:113 6644:12603:1 6645:12927:142 6787:12757:1 6788:13069:45 6833:13115:71 "
    "6904:13380:1 6905:13186:194 7099:13381:490 7589:13914:1 7590:13871:43 7633:13915:1 7634:13917:11 7645:13916:1 "
    "7646:13928:4"
)


def decode_euc_tw(data: bytes) -> str:
    """Decode strictly; a character cut off at the very end is left out.

    >>> decode_euc_tw(bytes.fromhex("c4a1c4a3"))
    '一丁'

    Raises:
        ValueError: a byte sequence that is not EUC-TW, or a character beyond planes 1 and 2.
    """
    plane_1, plane_2 = _table(_PLANE_1_RUNS), _table(_PLANE_2_RUNS)
    text: list[str] = []
    position = 0
    while position < len(data):
        byte = data[position]
        if byte < 0x80:
            text.append(chr(byte))
            position += 1
            continue
        plane = plane_1
        if byte == PLANE_2[0]:
            plane = plane_2
            if data[position + 1 : position + 2] not in (b"\xa1", b"\xa2", b""):
                raise ValueError(f"byte {position}: a plane beyond 2")
            if data[position + 1 : position + 2] == b"\xa1":
                plane = plane_1
            position += 2
        pair = data[position : position + 2]
        if len(pair) < 2:
            break
        if min(pair) < 0xA1 or (index := (pair[0] - 0xA1) * ROW + pair[1] - 0xA1) not in plane:
            raise ValueError(f"byte {position}: not a character of EUC-TW")
        text.append(plane[index])
        position += 2
    return "".join(text)


def encode_euc_tw(text: str) -> bytes:
    """Encode what `decode_euc_tw` decodes; raises `UnicodeEncodeError` for any other character.

    >>> encode_euc_tw("一丁").hex()
    'c4a1c4a3'
    """
    inverse = _inverse()
    out = bytearray()
    for position, char in enumerate(text):
        code = char.encode() if char < "\x80" else inverse.get(char)
        if code is None:
            raise UnicodeEncodeError("euc_tw", text, position, position + 1, "not in planes 1 and 2")
        out += code
    return bytes(out)


@cache
def _inverse() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for prefix, runs in ((PLANE_2, _PLANE_2_RUNS), (b"", _PLANE_1_RUNS)):
        for index, char in _table(runs).items():
            found[char] = prefix + bytes([0xA1 + index // ROW, 0xA1 + index % ROW])
    return found


@cache
def _table(runs: str) -> dict[int, str]:
    table: dict[int, str] = {}
    for run in runs.split():
        start, big5, length = map(int, run.split(":"))
        table |= {start + step: _big5_char(big5 + step) for step in range(length)}
    return table


def _big5_char(index: int) -> str:
    row, column = divmod(index, BIG5_ROW)
    return bytes([0xA1 + row, column + (0x40 if column < 63 else 0xA1 - 63)]).decode("big5")
