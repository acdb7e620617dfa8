"""How well personal data are found: strings made up as people write them on Chinese pages, and their look-alikes.

`python -m tools.evaluate.filters` prints precision and recall of each kind with 95 % intervals.

Every value comes from a generator (area codes, check digits and all) and belongs to nobody. A kind's value counts as
found where a span of that kind covers it and little more; a span that covers no value of its kind is a false one,
whether it stands in a look-alike or beside another kind. Not in the set, because they are not found: numbers spelled
with Han digits (一三八...), numbers in pictures, accounts that are announced by no word.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from corpus.filters.statistic import buffers
from corpus.personal_data import find_personal_data
from tools.pii_canaries.values import MAKERS, Chance, digits, id_number, mobile_number, with_luhn_digit

SEED = 20240601
NUM_PER_KIND = 300
NUM_LOOK_ALIKES = 2400
MAX_EXCESS_CHARS = 12  # of a span beyond its value: a country code, an extension

BEFORE = (
    "今年的报名已经开始，想参加的同学请尽早联系我们",
    "这家店开了二十多年，老板姓李，人很和气",
    "昨天下午在人民路捡到一个黑色的包",
    "房子在三楼，南北通透，随时可以看",
    "本人承接各种装修工程，价格公道",
    "会议的地点还没有定下来，有问题可以先问小周",
    "通知如下",
    "据警方通报，嫌疑人使用他人信息办理业务",
)
AFTER = (
    "，谢谢大家",
    "。非诚勿扰",
    "，晚上七点以后也可以",
    "（周末休息）",
    "\n地址在学校东门对面",
    "！",
    "，欢迎光临",
    "，过期不候",
    " ",
)
NAMES = "王先生 李女士 张经理 小陈 刘老师 赵师傅 周主任 阿强 孙工 吴医生".split()


class Canary(NamedTuple):
    """A text, and the values in it by kind; a look-alike has none."""

    text: str
    values: tuple[tuple[str, str], ...]
    origin: str


def canaries(seed: int = SEED) -> Iterator[Canary]:
    """Values of every kind in context, then look-alikes."""
    chance = random.Random(seed)
    for kind, make in MAKERS.items():
        for _ in range(NUM_PER_KIND):
            context, value = make(chance)
            context = context.replace("{name}", chance.choice(NAMES))
            yield Canary(_surround(chance, context.replace("{}", value)), ((kind, value),), kind)
    for _ in range(NUM_LOOK_ALIKES):
        yield Canary(_surround(chance, look_alike(chance)), (), "look-alike")


def _surround(chance: Chance, core: str) -> str:
    before = chance.choice(BEFORE) + chance.choice(["，", "。", "：", "", " ", "\n"])
    return before + core + chance.choice(AFTER) + chance.choice(["", chance.choice(BEFORE)])


class Score(NamedTuple):
    """Counts by kind."""

    values: Counter[str]
    hits: Counter[str]
    found: Counter[str]


def score(items: list[Canary]) -> Score:
    """What the filter finds in the canaries."""
    texts = pa.array([item.text for item in items], pa.large_string())
    spans = find_personal_data(texts, *buffers(texts)).spans
    values, hits, found = Counter[str](), Counter[str](), Counter[str]()
    for row, item in enumerate(items):
        here = spans.get(row, [])
        found.update(span.kind for span in here)
        for kind, value in item.values:
            values[kind] += 1
            start = item.text.index(value)
            for span in here:
                covers = span.start <= start and span.end >= start + len(value)
                if span.kind == kind and covers and span.end - span.start <= len(value) + MAX_EXCESS_CHARS:
                    hits[kind] += 1
    return Score(values, hits, found)


def isbn13(chance: Chance) -> str:
    first = "9787" + digits(chance, 8)
    check = (10 - sum(int(d) * (3 if k % 2 else 1) for k, d in enumerate(first)) % 10) % 10
    return f"{first}{check}"


def look_alike(chance: Chance) -> str:
    """A string that looks like personal data and is none."""

    def d(count: int, first: str = "0123456789") -> str:
        return digits(chance, count, first)

    year, month, day = chance.randrange(1995, 2025), chance.randrange(1, 13), chance.randrange(1, 29)
    number = id_number(chance)
    wrong_id = number[:17] + chance.choice([c for c in "0123456789X" if c != number[17]])
    card = with_luhn_digit("622202" + d(12))
    wrong_card = card[:-1] + chance.choice([c for c in "0123456789" if c != card[-1]])
    isbn = isbn13(chance)
    phone = mobile_number(chance)
    makers: list[Callable[[], str]] = [
        lambda: f"订单号{year}{month:02d}{day:02d}{d(10)}",
        lambda: f"订单编号：{phone}",
        lambda: f"快递单号：{chance.choice(['SF', 'YT', 'JD', ''])}{d(13, '123456789')}",
        lambda: f"运单号 {d(12, '34567')}",
        lambda: f"ISBN {isbn}",
        lambda: f"ISBN：{isbn[:3]}-{isbn[3]}-{isbn[4:8]}-{isbn[8:12]}-{isbn[12]}",
        lambda: f"ISSN {d(4)}-{d(3)}X",
        lambda: f"统一书号：{d(5)}·{d(4)}",
        lambda: f"售价{d(3, '123456789')}.{d(2)}元",
        lambda: f"￥{chance.randrange(1, 99)},{d(3)},{d(3)}.00",
        lambda: f"成交额{phone}元",
        lambda: f"市值{d(11, '13')}美元",
        lambda: (
            f"{year}-{month:02d}-{day:02d} "
            f"{chance.randrange(24):02d}:{chance.randrange(60):02d}:{chance.randrange(60):02d}"
        ),
        lambda: f"{year}年{month}月{day}日",
        lambda: f"{year}{month:02d}{day:02d}",
        lambda: f"{year}.{month:02d}.{day:02d}-{year + 1}.{month:02d}.{day:02d}",
        lambda: f"时间戳{d(13, '1')}",
        lambda: (
            f"版本{chance.randrange(1, 20)}.{chance.randrange(20)}.{chance.randrange(300)}.{chance.randrange(5000)}"
        ),
        lambda: (
            f"升级到v{chance.randrange(1, 20)}.{chance.randrange(20)}.{chance.randrange(30)}.{chance.randrange(50)}"
        ),
        lambda: f"Chrome {chance.randrange(40, 120)}.0.{chance.randrange(100, 255)}.{chance.randrange(10, 200)}",
        lambda: (
            f"见第{chance.randrange(1, 9)}.{chance.randrange(1, 9)}.{chance.randrange(1, 9)}.{chance.randrange(1, 9)}节"
        ),
        lambda: f"内网地址192.168.{chance.randrange(256)}.{chance.randrange(1, 255)}",
        lambda: f"网关10.{chance.randrange(256)}.{chance.randrange(256)}.1",
        lambda: f"172.{chance.randrange(16, 32)}.{chance.randrange(256)}.{chance.randrange(1, 255)}",
        lambda: "127.0.0.1和0.0.0.0",
        lambda: "子网掩码255.255.255.0",
        lambda: f"身份证号{wrong_id}",
        lambda: f"编号{wrong_id}",
        lambda: f"卡号{wrong_card}",
        lambda: f"银行卡{wrong_card[:4]} {wrong_card[4:8]} {wrong_card[8:12]} {wrong_card[12:16]} {wrong_card[16:]}",
        lambda: f"md5值{''.join(chance.choice('0123456789abcdef') for _ in range(32))}",
        lambda: f"提交{''.join(chance.choice('0123456789abcdef') for _ in range(40))}",
        lambda: "550e8400-e29b-41d4-a716-" + d(12),
        lambda: f"坐标{chance.randrange(73, 135)}.{d(6)},{chance.randrange(18, 53)}.{d(6)}",
        lambda: (
            f"东经{chance.randrange(73, 135)}°{chance.randrange(60)}′，"
            f"北纬{chance.randrange(18, 53)}°{chance.randrange(60)}′"
        ),
        lambda: f"股票代码{chance.choice(['600', '000', '300', '688'])}{d(3)}",
        lambda: f"沪A{chance.choice(['600', '601'])}{d(3)}",
        lambda: f"川A股份{d(5)}",
        lambda: f"条形码69{d(11)}",
        lambda: f"序列号{phone}{d(4)}",
        lambda: f"序列号：{phone}",
        lambda: f"流水号{d(20)}",
        lambda: f"圆周率3.{phone}",
        lambda: f"{d(8)}{phone}{d(3)}",
        lambda: f"https://example.com/item/{phone}.html",
        lambda: f"http://www.example.cn/show.asp?id={number}",
        lambda: f"https://weibo.com/{d(10, '1256')}/{d(16, '45')}",
        lambda: f"图片IMG_{year}{month:02d}{day:02d}_{d(6)}.jpg",
        lambda: f"logo@{chance.randrange(2, 4)}x.png",
        lambda: f"npm install vue@{chance.randrange(1, 4)}.{chance.randrange(20)}.{chance.randrange(20)}",
        lambda: "git@github.com:example/project.git",
        lambda: f"@{chance.choice(['小明', 'media', 'Override', 'angular/core'])} 的写法",
        lambda: "systemctl start getty@tty1.service",
        lambda: f"服务热线400-{d(3)}-{d(4)}",
        lambda: f"拨打800{d(7)}",
        lambda: f"客服电话{chance.choice(['95588', '10086', '12306', '12345', '110', '95533'])}",
        lambda: f"微信{chance.choice(['8.0.32', 'iOS', 'Android', 'JSSDK', 'WeChat', '小程序', 'Windows版', 'H5'])}",
        lambda: f"微信公众号：{chance.choice(['renminribao', 'chinadaily123', 'xinhuashefabu1'])}",
        lambda: f"微信用户突破{chance.randrange(5, 13)}亿，QQ {d(9, '5678')}人在线",
        lambda: f"QQ{chance.choice(['2010', '2013版', '空间', '浏览器10.5', '音乐', '飞车'])}",
        lambda: f"QQ同时在线人数达{d(9, '12')}人",
        lambda: f"wx.{chance.choice(['request', 'login', 'getUserInfo'])}({{}})",
        lambda: f"添加{chance.choice(['Vue组件', 'VPN', 'VSCode插件', 'Vagrantfile', 'WebSocket支持'])}",
        lambda: f"护照的有效期为十年，办理费用{d(3, '12')}元，需要照片{d(1, '24')}张",
        lambda: f"护照{year}年{month}月到期",
        lambda: f"航班CA{d(4, '123456789')}，座位{d(2, '123')}A",
        lambda: f"列车G{d(4, '1')}次",
        lambda: f"采用最新A{d(2, '1')}处理器，主频{d(4, '23')}MHz",
        lambda: f"型号：京东方B{d(3)}XYZ",
        lambda: f"国标GB/T {d(5, '123')}-{year}",
        lambda: f"京ICP备{d(8)}号-{d(1, '1234')}",
        lambda: f"京公网安备11{d(12)}号",
        lambda: f"增值电信业务经营许可证B2-{year}{d(4)}",
        lambda: f"统一社会信用代码91{d(6)}MA{d(8)}X"[:22],
        lambda: f"邮编{d(6, '1234567')}",
        lambda: f"人口{d(8, '12345')}人",
        lambda: f"面积{d(7)}平方米",
        lambda: f"MAC地址00:1a:{d(2)}:3c:{d(2)}:5e",
        lambda: f"时长{chance.randrange(24):02d}:{chance.randrange(60):02d}:{chance.randrange(60):02d}",
        lambda: f"本地回环::1，文档地址2001:db8::{d(3, '123')}，链路fe80::1",
        lambda: "std::vector和abc::def::bad",
        lambda: f"税号{d(15, '123456789')}",
        lambda: f"学号{year}{d(8)}",
        lambda: f"案号（{year}）京01民终{d(5)}号",
        lambda: f"{d(4)}-{d(4)}学年",
        lambda: f"比分{chance.randrange(9)}-{chance.randrange(9)}，场次{d(3)}",
        lambda: f"DOI:10.{d(4, '1')}/j.cnki.{d(8)}",
        lambda: f"CN {d(2, '1')}-{d(4)}/TP",
        lambda: f"端口{chance.choice([8080, 3306, 6379])}，进程{d(5, '123')}",
        lambda: "1 2 3 4 5 6 7 8 9 10 11 12",
        lambda: "13 14 15 16 17 18 19 20",
        lambda: (
            f"双色球开奖号码：{' '.join(f'{chance.randrange(1, 34):02d}' for _ in range(6))}+{chance.randrange(1, 17):02d}"
        ),
    ]
    return chance.choice(makers)()
