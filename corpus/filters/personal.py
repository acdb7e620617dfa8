"""Personal data as statistics: how many of each kind a document holds, counted before any is masked.

    [filter.edit]      personal_data = ["mobile", "id_card"]     mask these kinds; one that is left out is kept
    [filter.personal]  id_card = { max = 0 }                     drop a document that holds one

So a kind is masked, kept, or reason to drop, as the recipe says. How they are found: personal_data.
"""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Compute, Floats, statistic
from corpus.personal_data import KINDS, Kind

COUNTED: dict[Kind, str] = {
    "email": """E-mail addresses; also with a bracketed "at". No file names (icon@2x.png), no git@host:path.

    >>> from corpus.filters import measure
    >>> measure("personal.email", ["写信到zhang@example.com", "图标icon@2x.png"])
    array([1., 0.])
    """,
    "id_card": """Identity card numbers: 18 characters by GB 11643-1999 with check character; 15 digits after 身份证.

    Of Hong Kong, A123456(3), and Taiwan, A123456789, by their check digits; of Macau, 1234567(8), after 身份證.

    >>> from corpus.filters import measure
    >>> measure("personal.id_card", ["身份证号：11010519491231002X", "编号110105194912310020"])
    array([1., 0.])
    """,
    "bank_card": """Bank card numbers: 16 to 19 digits, Luhn's check digit (ISO/IEC 7812-1), an issuer used in China.

    >>> from corpus.filters import measure
    >>> measure("personal.bank_card", ["卡号6222020012345678903", "卡号6222020012345678904"])
    array([1., 0.])
    """,
    "mobile": """Mobile numbers of mainland China: 11 digits from 13 to 19, with or without +86 and separators.

    Of Hong Kong, Macau and Taiwan with +852, +853, +886, after 電話, 手機, WhatsApp, or as 0912-345-678.

    >>> from corpus.filters import measure
    >>> measure("personal.mobile", ["手机１３８００１３８０００", "订单号2023113800138000"])
    array([1., 0.])
    """,
    "landline": """Landline numbers with an area code, or after 电话, 传真. Not 400 and 800: businesses.

    Of Hong Kong, Macau and Taiwan with +852, +853, +886, as (02)2345-6789, or after 電話.

    >>> from corpus.filters import measure
    >>> measure("personal.landline", ["电话010-62785001", "热线400-123-4567"])
    array([1., 0.])
    """,
    "ipv4": """Public IPv4 addresses (RFC 6890); no versions, networks or well-known name servers.

    >>> from corpus.filters import measure
    >>> measure("personal.ipv4", ["来自123.125.114.144的网友", "网关192.168.1.1"])
    array([1., 0.])
    """,
    "ipv6": """Public IPv6 addresses (RFC 6890).

    >>> from corpus.filters import measure
    >>> measure("personal.ipv6", ["登录IP:240e:3a1:5c2f:9d10::8a2e", "文档用2001:db8::1"])
    array([1., 0.])
    """,
    "wechat": """WeChat accounts after 微信, VX, 薇❤ and the like; not 公众号.

    >>> from corpus.filters import measure
    >>> measure("personal.wechat", ["加薇❤：xiao_li88", "微信公众号：renminribao"])
    array([1., 0.])
    """,
    "qq": """QQ numbers and QQ groups after QQ, 扣扣, 企鹅号 and the like.

    >>> from corpus.filters import measure
    >>> measure("personal.qq", ["QQ：12345678", "QQ2013版"])
    array([1., 0.])
    """,
    "passport": """Chinese passport numbers after 护照 or passport, permits after 回乡证, 台胞证, 通行证.

    >>> from corpus.filters import measure
    >>> measure("personal.passport", ["护照号码：E12345678", "护照有效期十年"])
    array([1., 0.])
    """,
    "plate": """Licence plates by GA 36, new energy ones too.

    >>> from corpus.filters import measure
    >>> measure("personal.plate", ["车牌京A·12345", "沪A600519"])
    array([1., 0.])
    """,
}
__test__ = COUNTED  # where doctest looks beside docstrings


def _count_of(kind: Kind) -> Compute:
    return lambda batch: batch.personal.counts[:, KINDS.index(kind)].astype(np.float64)


for _kind, _doc in COUNTED.items():
    statistic(unit="count", name=_kind, doc=_doc)(_count_of(_kind))


@statistic(unit="count")
def total(batch: Batch) -> Floats:
    """Personal data of all kinds: a directory page has hundreds.

    >>> from corpus.filters import measure
    >>> measure("personal.total", ["手机13800138000，邮箱a@b.cn", "学而时习之"])
    array([2., 0.])
    """
    counts: Floats = batch.personal.counts.sum(axis=1).astype(np.float64)
    return counts
