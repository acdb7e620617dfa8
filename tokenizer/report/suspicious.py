"""Pieces that a vocabulary should not spend an id on: advertising, fixed texts of one site, broken encodings.

A vocabulary learns what is frequent, and what is frequent on the web is spam and site chrome: the longest Chinese
tokens of GPT-4o's o200k are gambling and pornography. Such a token wastes a row of the embedding, and a model that has
not seen it in clean text answers it with nonsense. The rules, in the order in which they speak:

- broken encoding: U+FFFD, private use, 锟斤拷, 烫烫烫, UTF-8 read as GBK (鐨勬枃) or as Latin-1 (ä¸­);
- spam words: a list (`spam_words.txt`), in Simplified and Traditional, full and half width, with or without blanks;
- addresses: domains, e-mail, long numbers, filing numbers of Chinese sites (ICP备);
- repetition: a Han character four times, a group three times, a letter eight times. Runs of one punctuation mark or of
  blanks stay: code, tables and rulers are made of them;
- with texts: long Han pieces that are no words but parts of a fixed text, see `tokenizer.report.phrases`.

Single characters stay, whatever they are, except those that are no text: they are the alphabet.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

from tokenizer.model import SPACE_MARK
from tokenizer.report.phrases import fixed_phrases

WORDS_FILE = "spam_words.txt"
ORDINARY = "ordinary"  # the section of words that are taken out of a piece before it is searched
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
NUM_MOJIBAKE_CHARACTERS = 3  # of a piece whose GBK bytes are UTF-8; by chance two are
LAST_COMMON_ROW = 0xD7  # of GB 2312, as the first byte

_HAN_ONLY = re.compile("[\u4e00-\u9fff]+")
_SPECIAL = re.compile(r"<0x[0-9A-F]{2}>|<unk>|<\|[^|]*\|>")
_NO_TEXT = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")
_BROKEN = re.compile(
    "锟斤|斤拷|拷锟|烫烫烫|屯屯屯|锘|鈥[^\\s]|锛|銆|ï»¿|ï¿½|[\u00c2-\u00f4][\u0080-\u00bf]"
    "|(?=[\u00a1-\u00bf]*[\u00c0-\u00fe])[\u00a1-\u00fe]{4}"
)
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_UTF8_HAN = re.compile(rb"((?:[\xe3-\xe9\xef][\x80-\xbf]{2})+)(?:[\xe3-\xe9\xef][\x80-\xbf]?)?")
_REPEATED = re.compile(rf"([{HAN}])\1{{3}}|([{HAN}]{{2,5}})\2\2|((?![fx])[^\W\d_])\3{{7}}")
_ADDRESS = re.compile(
    r"(?P<domain>www\.\w|https?://\w|(?:^|\w)\.(?:com|cn|org|gov|edu)\b)"
    r"|(?P<mail>\w@\w|@\w+\.\w)"
    r"|(?P<number>\d{5})"
    r"|(?P<filing>icp[备備证證]|icp.?\d|备案号|備案號|公网安备|公網安備|网安备|增值电信业务|許可證編號|许可证编号)",
    re.ASCII,
)
_ADDRESS_REASONS = {
    "domain": "address: part of a URL",
    "mail": "address: part of an e-mail address",
    "number": "address: five digits in a row",
    "filing": "address: filing number of a site",
}


def suspicious_pieces(pieces: Sequence[str], texts: Sequence[str] | None = None) -> dict[str, str]:
    """Each suspicious piece with a short reason `kind: detail`, in the order of `pieces`.

    Args:
        pieces: as the vocabulary spells them (U+2581 for a blank) or as they read; bytes and control symbols are passed
            over.
        texts: a sample of the training text; without it, only what a piece shows by itself is found.

    >>> suspicious_pieces(["彩票", "天天中彩票", "娛樂城", "====", "哈哈哈哈", "锟斤拷"])
    {'天天中彩票': 'spam: gambling (天天中彩)', '娛樂城': 'spam: gambling (娛樂城)',
     '哈哈哈哈': 'repetition: 哈', '锟斤拷': 'encoding: read in a wrong one'}
    """
    phrases = fixed_phrases([piece.replace(SPACE_MARK, " ") for piece in pieces], texts) if texts else {}
    found = {}
    for piece in pieces:
        text = piece.replace(SPACE_MARK, " ")
        if not _SPECIAL.fullmatch(piece) and (reason := _reason(text) or phrases.get(text)):
            found[piece] = reason
    return found


def _reason(text: str) -> str | None:
    if _NO_TEXT.search(text):
        return "encoding: not a character"
    if len(text) < 2:
        return None
    if is_mojibake(text):
        return "encoding: read in a wrong one"
    folded = fold(text)
    if word := spam_word(folded):
        return f"spam: {word[1]} ({word[0]})"
    if address := _ADDRESS.search(text.lower()):
        return _ADDRESS_REASONS[str(address.lastgroup)]
    if repeated := _REPEATED.search(text):
        return f"repetition: {repeated[1] or repeated[2] or repeated[3]}"
    return None


def is_mojibake(text: str) -> bool:
    """Whether a piece is what decoding in a wrong encoding makes of text.

    >>> [is_mojibake(text) for text in ("鐨勬枃绔", "锟斤拷", "ä¸­", "的文章", "café", "浣")]
    [True, True, True, False, False, False]
    """
    if len(text.strip()) < 2:
        return False
    return bool(_BROKEN.search(text)) or _is_utf8_as_gbk(text.strip())


def _is_utf8_as_gbk(text: str) -> bool:
    """Whether the GBK bytes of a piece are UTF-8 of common characters, cut anywhere.

    >>> [_is_utf8_as_gbk(text) for text in ("鏈嶅姟", "锛屾槸", "彲浠ュ", "版本的", "浙江省")]
    [True, True, True, False, False]
    """
    if len(text) < NUM_MOJIBAKE_CHARACTERS:
        return False
    try:
        data = text.encode("gbk")
    except UnicodeEncodeError:
        return False
    head = len(data) - len(data.lstrip(_CONTINUATION_BYTES))
    if head > 2 or not (whole := _UTF8_HAN.fullmatch(data, head)):
        return False
    return all(_is_common(character) for character in whole[1].decode())


def _is_common(character: str) -> bool:
    """Whether a character is punctuation or of the first level of GB 2312: the 3,755 most frequent of 6,763."""
    code = character.encode("gb2312", "ignore")
    return len(code) == 2 and code[0] <= LAST_COMMON_ROW


def fold(text: str) -> str:
    """How spam words are compared: half width, lower case, without blanks.

    >>> fold(" 加ＱＱ")
    '加qq'
    """
    if _HAN_ONLY.fullmatch(text):  # most of a vocabulary, and quicker
        return text
    return "".join(unicodedata.normalize("NFKC", text).lower().split())


def spam_word(folded: str) -> tuple[str, str] | None:
    """The first listed word that a folded piece holds, and its section of the list.

    >>> spam_word("天天中彩票"), spam_word("福利彩票"), spam_word("增加微信功能")
    (('天天中彩', 'gambling'), None, None)
    """
    words, pattern, ordinary = _spam_words()
    found = pattern.search(ordinary.sub("\n", folded))
    return (found[0], words[found[0]]) if found else None


@lru_cache(maxsize=1)
def _spam_words() -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str]]:
    """Each listed word with its section, a pattern of them all, and one of the words that shield."""
    words: dict[str, str] = {}
    ordinary: list[str] = []
    section = ""
    for line in resources.files("tokenizer.report").joinpath(WORDS_FILE).read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            if section == ORDINARY:
                ordinary += line.split()
            else:
                words |= dict.fromkeys(line.split(), section)
    return words, _any_of(words), _any_of(ordinary)


def _any_of(words: Sequence[str] | dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word))))
