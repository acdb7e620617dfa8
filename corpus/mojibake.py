"""Text that was read with the wrong codec and saved again: how Chinese a text looks, and undoing the mistake.

Text read with the right codec scores 0.5-0.8, text read with the wrong one below 0.15, after some twenty characters
already. A repair is a round trip back through the wrong codec; it is taken only when it is loss-free and its result is
clearly Chinese where the text itself is clearly not. Nearly every text is passed by a look at its first characters.
"""

from __future__ import annotations

import re
from contextlib import suppress

from corpus.whatwg import decode_as

MAX_SCORED_CHARS = 2_000
MIN_PLAUSIBLE_SCORE = 0.25  # right codec: 0.5-0.8; wrong codec: below 0.15
MIN_REPAIR_SCORE = 0.45
MIN_REPAIR_HAN = 8
HEAD_CHARS = 4_000  # one of COMMONEST among so many shows that all is well
GLANCE_CHARS = 200

# The 500 commonest Han characters of mixed modern and classical text cover 72 % of it; with their Traditional forms.
COMMON_HAN = frozenset(
    "的一是在有不了个人中以用你我大这和年可来上为之到他要行下如道文出使们时地于成作也能國子多其得说而方件分日本面后自会它将"
    "所开者就生此家发公主為同些前法程去名里过数都对事安部何并因工那理但被最代然及器新月小定建见通入或看三与系由只进等天好相"
    "命加应更西目二外国果知么令着正当学内民位南至心高现已起式动明提问重常全无王任第又解包性政很於需从意原间特机两想立世还十"
    "统经化制合接回後次北表元斯种路力期教學時物管平量手设海据把信度实户太口便没做样向基比装头利且关改务山始金會长情台版单置"
    "选服打字保言非美容源点德存码取网先今示项少即城軍计與该马身处四运市具女门老官各功编持什共交序题例州东色创布府水界每支直"
    "体士变受软供区必首展朝儿许列站指克试兵帝员端听個流几完放區來司军类东夫再认往步曰让写请治模未才英话语球死息對校五空史组"
    "图格走叫白戰別這称录像收标结求己院經真线形带业复则电书备客除科型配江清品决算武推师译易住神光活助李声号连快反給技亞候港"
    "早亦注河近香林集動古省简告众张花引爾故议總云皇內甚曾造获初论构過商著整星父望速传喜百队影統現終产转根爷尼社域条修索记场"
    "另居境随却節送载裏見進應麼當無從機還種設實樣裝頭關務長單點碼網項計該處運門編題創體變軟兒許試員聽幾類認讓寫請話語組圖別"
    "稱錄標結線帶業復則電書備決師譯聲號連簡張龍獲論終轉條記場隨載們說開發兩數並據車萬親觀議義氣報爭飛愛風買賣讀歡點嗎吗呢吧"
)
COMMONEST = (
    "的是了在有为这這"  # none of them comes out of Chinese UTF-8 read as GBK: their second bytes are no part of it
)

_GOOD = COMMON_HAN | set(map(chr, (*range(0x3000, 0x3018), *range(0xFF01, 0xFF5F)))) | set("“”‘’—…·")
_DEBRIS = re.compile("[\ue000-\uf8ff\x80-\x9f\ufffd\U000f0000-\U0010ffff]")
_ASCII = bytes(range(128))
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Windows-1252 as browsers read it: the five undefined bytes are the C1 controls of the same number, so every byte is
# some character and Latin-1 is contained in it.
_WINDOWS_1252 = {
    ord(bytes([byte]).decode("cp1252")): byte for byte in range(128, 160) if byte not in b"\x81\x8d\x8f\x90\x9d"
}
_BEYOND_1252 = re.compile("[^\0-\xff" + "".join(map(chr, _WINDOWS_1252)) + "]")


def score(text: str) -> float:
    """How much the non-ASCII part reads like Chinese: common Han and CJK marks count for, debris counts against.

    From -2 to 1; 0.0 for text without non-ASCII characters. At most MAX_SCORED_CHARS characters are read.

    >>> score("学而时习之，不亦说乎？") > 0.25 > score("瀛﹁€屾椂涔犱箣")
    True
    """
    sample = _without_ascii(text[: MAX_SCORED_CHARS * 2])
    if len(sample) < MAX_SCORED_CHARS:
        sample = _without_ascii(text[: MAX_SCORED_CHARS * 50])
    sample = sample[:MAX_SCORED_CHARS]
    if not sample:
        return 0.0
    good = sum(map(_GOOD.__contains__, sample))
    return (good - 2 * len(_DEBRIS.findall(sample))) / len(sample)


def _without_ascii(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")


def repair_mojibake(text: str) -> str | None:
    """Undo one wrong reading: UTF-8, GBK or Big5 read as Latin-1 or Windows-1252, or UTF-8 and Big5 read as GBK.

    None unless the evidence is strong: the text itself holds almost no common Han character, and the repaired text
    (loss-free, strictly decoded) has at least eight Han characters, of which half are common ones.

    >>> repair_mojibake("学而时习之，不亦说乎？有朋自远方来".encode().decode("gb18030", "ignore")) is None
    True
    >>> repair_mojibake("学而时习之，不亦说乎？有朋自远方来".encode("gbk").decode("latin-1"))
    '学而时习之，不亦说乎？有朋自远方来'
    >>> repair_mojibake("學而時習之，不亦說乎？有朋自遠方來".encode("big5").decode("latin-1"))
    '學而時習之，不亦說乎？有朋自遠方來'
    """
    if reads_well(text):
        return None
    best: tuple[float, str] | None = None
    data, codecs = _wrong_bytes(text)
    for codec in codecs:
        try:
            repaired = decode_as(data, codec)
        except UnicodeError:
            continue
        value = score(repaired)
        num_han = sum("\u4e00" <= char <= "\u9fff" for char in repaired[: MAX_SCORED_CHARS * 4])
        if value >= MIN_REPAIR_SCORE and num_han >= MIN_REPAIR_HAN and (best is None or value > best[0]):
            best = (value, repaired)
    return best[1] if best else None


def reads_well(text: str) -> bool:
    """Whether nothing hints at a wrong reading; decided on the first characters wherever they suffice."""
    if text.isascii() or any(text.find(char, 0, HEAD_CHARS) >= 0 for char in COMMONEST):
        return True
    return score(text[:GLANCE_CHARS]) >= MIN_REPAIR_SCORE or score(text) >= MIN_PLAUSIBLE_SCORE


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates (as JSON escapes can make them) turned into U+FFFD."""
    return utf8(text).decode()


def utf8(text: str) -> bytes:
    """The text in UTF-8, lone surrogates as U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text).encode()


def _wrong_bytes(text: str) -> tuple[bytes, tuple[str, ...]]:
    """The bytes the text may have been made of, with the codecs they may really be in."""
    if not _BEYOND_1252.search(text):
        return text.translate(_WINDOWS_1252).encode("latin-1"), ("utf-8", "gb18030", "big5hkscs")
    with suppress(UnicodeEncodeError):  # a lone surrogate
        return text.encode("gb18030"), ("utf-8", "big5hkscs")
    return b"", ()
