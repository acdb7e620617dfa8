"""Addresses without what is a person's or a secret: user info, and such values of the query; other bytes stay.

A function of the address alone that changes nothing the second time, so that a look-up does to the address it is asked
for what was done to the one that is stored. Identities are made of the address as it was read.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

MASKED = "<MASKED>"
_USER = re.compile(r"\A((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)[^/?#\\]*@")
_VALUE = re.compile(r"(?<=[?&;#])([^=?&;#]{1,64})=([^?&;#]+)")
_SECRET = re.compile(  # keys of what lets its holder in
    r"[\w.-]*(?:token|passw(?:or)?d|secret|signature|session|session_?id|sessid)|pwd|auth|api_?key|sid", re.IGNORECASE
)
MIN_SID_CHARS = 16  # a shorter sid= is a section of the site
_MAY_BE_PERSONAL = re.compile(  # to look closer takes 100 us
    r"@|(?<![0-9])(?:1[3-9][0-9]{9}|[1-9][0-9]{14,17}[0-9X]|0[0-9]{9,11}|8[568][0-9]{9,13})(?![0-9])|"
    r"[0-9]{2}[-. ()]{1,4}[0-9]{3}|(?:[0-9]{1,3}\.){3}[0-9]|"
    r"\A.{0,16}(?:tel|phone|mobile|qq|vx|wx|wechat|weixin|passport|id_?card):",
    re.IGNORECASE,
)


def masked_url(url: str) -> str:
    """The address without user info, and with a placeholder for personal data and secrets in its query.

    >>> masked_url("https://user:pw@a.cn/论语?id=13800138000&phone=13800138000#x")
    'https://a.cn/论语?id=13800138000&phone=<MASKED>#x'
    """
    if "@" in url:
        url = _USER.sub(r"\1", url)
    return _VALUE.sub(_masked, url) if "=" in url else url


def _masked(found: re.Match[str]) -> str:
    key, value = found.groups()
    if _SECRET.fullmatch(key):
        is_masked = key.lower() != "sid" or len(value) >= MIN_SID_CHARS
    else:
        said = f"{key}:{unquote_plus(value)}"
        is_masked = _MAY_BE_PERSONAL.search(said) is not None and _holds_personal_data(said)
    return f"{key}={MASKED}" if is_masked else found[0]


def _holds_personal_data(text: str) -> bool:
    from corpus.personal_data import mask  # numba: imported where it is needed

    return mask(text) != text
