"""What a word or a character announces: WeChat and QQ accounts, passports, local telephone numbers, licence plates.

A word alone can be any text (微信 JSSDK, QQ 2013): an account is announced by a colon, by 号, by 加, or is called by a
nickname (薇信) and holds digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from corpus.personal_data.gate import PROVINCES
from corpus.personal_data.window import Span, Window

_LETTER_PLATE = "[A-HJ-NP-Za-hj-np-z]"
_PLATE = re.compile(
    rf"[{PROVINCES}]{_LETTER_PLATE}[ ·.-]?"
    r"(?:(?P<last>[A-HJ-NP-Za-hj-np-z0-9]{4}[挂学警港澳])|(?P<new>[A-HJKa-hjk][A-HJ-NP-Za-hj-np-z0-9][0-9]{4}|"
    r"[0-9]{5}[A-HJKa-hjk])|"
    r"(?P<old>[A-HJ-NP-Za-hj-np-z0-9]{5}))(?![0-9A-Za-z_%])"
)
_OTHER_WORD = re.compile(r"(?:[最全更刷创翻崭重]新|(?:阿里|腾讯|华为|百度)云|[北南东]京)$")
_MIN_PLATE_DIGITS = 3


def plate(view: Window) -> Span | None:
    """A licence plate (GA 36): 京A12345, 粤B·D12345 (new energy), 粤Z1234港."""
    match = _PLATE.match(view.text, view.at)
    if match is None or _OTHER_WORD.search(view.text[max(0, view.at - 2) : view.at + 1]):
        return None
    number = match["last"] or match["new"] or match["old"]
    if sum(character.isdigit() for character in number) < _MIN_PLATE_DIGITS - bool(match["last"]):
        return None
    return Span(view.origin + view.at, view.origin + match.end(), "plate")


_PASSPORT = re.compile(
    r"(?:护照|[Pp][Aa][Ss][Ss][Pp][Oo][Rr][Tt])[^0-9\n。;]{0,24}?"
    r"(?<![0-9A-Za-z])((?:[EGDSPHMegdsphm] ?[0-9]{8}|[EDSPedsp][A-HJ-NP-Za-hj-np-z] ?[0-9]{7}|"
    r"1[45][0-9]{7}))(?![0-9A-Za-z_])"
)
_PERMIT = re.compile(  # to cross the borders of Hong Kong, Macau and Taiwan; 8 digits alone only of Taiwan's residents
    r"(?:(?:回[乡鄉]|[台臺]胞|通行)[证證][^0-9\n。;]{0,24}?(?<![0-9A-Za-z])(?P<lettered>[CHLMTWchlmtw](?:[0-9]{8}(?:[0-9]{2})?|"
    r"[A-Za-z][0-9]{7}))|(?:[台臺]胞|(?<=大[陆陸])通行)[证證](?:号码|號碼|号|號|编号|編號|为|為|是|[ :(]){0,8}"
    r"(?P<digits>(?!(?:19|20)[0-9]{2}[01][0-9][0-3][0-9])[0-9]{8}(?:[0-9]{2})?))(?![0-9A-Za-z_])"
)
_WECHAT_WORD = re.compile(
    r"[加+] ?(?:[VvWw] ?[Xx]|[Vv]|[微薇])[ *·❤♥\ufe0f]{0,2}信?(?P<account>信?号|信)?|[微薇威徽][ *·❤♥\ufe0f]{0,2}信|[VvWw][ "
    r"*·❤♥\ufe0f]{0,2}信|"
    r"[VvWw][Xx]|[Ww][Ee][Cc][Hh][Aa][Tt]|[Ww][Ee][Ii][Xx][Ii][Nn]|薇(?=[❤♥:])|[Vv](?=[❤♥\ufe0f]{0,2} ?:)|[Vv](?=[❤♥])"
)
_WECHAT_REST = re.compile(r" ?(?:(?:账号|帐号|号码|同号|联系|客服|咨询|群|号|[Ii][Dd])(?:/QQ)?){0,2}")
_GAP = re.compile(r"[ :=是为❤♥\ufe0f~>→(\[\"“]{0,4}")
_WECHAT_ID = re.compile(
    r"[A-Za-z][A-Za-z0-9_-]{5,19}(?![A-Za-z0-9_@-]|\.[A-Za-z])|[1-9][0-9]{4,10}(?![0-9A-Za-z_@-]|\.[0-9])"
)
_NO_WECHAT_ID = frozenset(
    "wechat weixin android iphone windows harmonyos official string number boolean object integer undefined github "
    "required optional".split()
)
_MOBILE_ALONE = re.compile(r"1[3-9][0-9]{9}")
_QQ_WORD = re.compile(r"[加+] ?[Qq]{1,2}|[Qq]{2}|扣扣|叩叩|球球|企鹅|[Qq](?= ?[群号:])")
_QQ_REST = re.compile(r" ?(?:官方|技术|交流|客服|咨询|在线|联系|账号|号码|群号|群|号|[一二三四五1-5](?=群|号?:)){0,5}")
_QQ_ID = re.compile(
    r"[1-9][0-9]{1,4}(?:[ -][0-9]{2,7}){1,2}(?![0-9A-Za-z_@]|[ .-][0-9])|[1-9][0-9]{4,10}(?![0-9A-Za-z_@]|"
    r"[.-][0-9A-Za-z])"
)
_UNIT = re.compile(r" ?(?:万|亿|人|个|名|用户|版|年|次|位|元|只|款|条|天|号段|多)")
_LOCAL_WORD = re.compile(r"(?:[电電][话話]|座机|固话|热线|熱線|传真|傳真|致[电電]|[电電]洽|[Tt][Ee][Ll])")
_LOCAL_REST = re.compile(r"(?:号码|號碼|号|號|/传真|/傳真|\.)?")
_LOCAL_ID = re.compile(
    r"[2-8][0-9]{6,7}(?![0-9A-Za-z_%]|[.\-/:][0-9])|[2-8][0-9]{2,3}[ -][0-9]{4}(?![0-9A-Za-z_%]|[ .\-/:][0-9])"
)
_ABROAD_WORD = re.compile(r"(?:手[机機]|[Ww]hats ?[Aa]pp)")  # eight digits in Hong Kong and Macau; 4999-5999 is a price
_ABROAD_ID = re.compile(r"(?:[4-9][0-9]{3} ?|9[0-9]{3}-)[0-9]{4}(?![0-9A-Za-z_%]|[ .\-/:][0-9])")
_NINES = re.compile(r"9[0-9]{3}[ -]?[0-9]{4}(?![0-9A-Za-z_%]|[ .\-/:][0-9])")  # no landline begins with 9
_CLOSING = (*"，。、；！）】 \n", "")
_AND = re.compile(r" ?[/、,，或和;|] ?")


class Account(NamedTuple):
    """A kind of account: the word that announces it, what may follow that word, and the account's own form."""

    kind: str
    word: re.Pattern[str]
    rest: re.Pattern[str]
    form: re.Pattern[str]


_ACCOUNTS = (
    Account("wechat", _WECHAT_WORD, _WECHAT_REST, _WECHAT_ID),
    Account("qq", _QQ_WORD, _QQ_REST, _QQ_ID),
    Account("landline", _LOCAL_WORD, _LOCAL_REST, _LOCAL_ID),
    Account("mobile", _LOCAL_WORD, _LOCAL_REST, _NINES),
    Account("mobile", _ABROAD_WORD, _LOCAL_REST, _ABROAD_ID),
)


def accounts(view: Window) -> Iterator[Span]:
    """What the word at the place announces: passport, permit, WeChat or QQ account, a local telephone; also several."""
    text, at = view.text, view.at
    passport = _PASSPORT.match(text, at)
    if passport:
        yield Span(view.origin + passport.start(1), view.origin + passport.end(1), "passport")
    permit = _PERMIT.match(text, at)
    if permit:
        start, end = permit.span(permit.lastgroup or 0)
        yield Span(view.origin + start, view.origin + end, "passport")
    if at and text[at].isascii() and text[at - 1].isascii() and text[at - 1].isalpha():
        return
    for account in _ACCOUNTS:
        word = account.word.match(text, at)
        found = _first(view, account, word[0]) if word else None
        while found is not None:
            yield Span(view.origin + found.start(), view.origin + found.end(), account.kind)
            joint = _AND.match(text, found.end())
            found = account.form.match(text, joint.end()) if joint else None
            if found is not None and (found[0].isalpha() or _is_other(account, text, found)):
                found = None


def _first(view: Window, account: Account, word: str) -> re.Match[str] | None:
    """The account behind its word, if it is one."""
    text = view.text
    rest_end = _end(account.rest, text, view.at + len(word))
    rest = text[view.at + len(word) : rest_end]
    gap = text[rest_end : _end(_GAP, text, rest_end)]
    found = account.form.match(text, rest_end + len(gap))
    if found is None or _is_other(account, text, found):
        return None
    announced = bool(":" in gap or rest.strip() or word[0] in "加+")
    if account.kind == "wechat" and not _is_wechat(view, word, rest + gap, found, announced):
        return None
    if account.kind == "qq" and not announced:
        is_clear = len(found[0]) >= 6 or not word.isascii() or view.raw[found.end() : found.end() + 1] in _CLOSING
        return found if is_clear and len(gap) <= 1 else None
    return found


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _is_other(account: Account, text: str, found: re.Match[str]) -> bool:
    """True for so many people or yuan, and for a mobile number, which is found as one."""
    if account.kind == "landline":
        return False
    return bool(_UNIT.match(text, found.end()) or _MOBILE_ALONE.fullmatch(found[0]))


def _is_wechat(view: Window, word: str, between: str, found: re.Match[str], announced: bool) -> bool:
    """Words alone can be any text: 微信 JSSDK. An account is announced, or holds digits and is called by a nickname."""
    account = found[0]
    if account.lower() in _NO_WECHAT_ID or account.lower().startswith("http"):
        return False
    is_latin = word[-1].isascii()
    if is_latin and not between and account[0].isalpha():
        return False  # WXapp, 加VSCode
    has_digit = any(character.isdigit() or character == "_" for character in account)
    if has_digit:
        return announced or (
            sum(map(str.isdigit, account)) >= 3 - is_latin and not account.isdigit() and len(between) < 2
        )
    is_nickname = word[0] in "薇徽" or (between == "(" and account.islower() and view.text[found.end() :][:1] == ")")
    if not (announced or is_nickname) or account.isupper():
        return False
    if not (between.strip() or is_nickname or (not is_latin and word[0] in "加+")):
        return False
    around = view.raw[max(0, view.at - 1) : view.at], view.raw[found.end() : found.end() + 1]
    return not is_latin or any(not character.isascii() for character in around)  # else `vx: velocity` of a program
