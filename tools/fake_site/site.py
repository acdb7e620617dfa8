"""A host of the fake web under construction: its pages, and what is expected of a crawler at each."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from html import escape

from tools.fake_site.expected import ALLOWED, FORBIDDEN, KEPT, UNKNOWN, Expected, Family, Truth, digest_of
from tools.fake_site.wire import Answer, Asked, Computed, Reply, page

NOT_FOUND = Answer(b"<title>404</title>", 404)
# made-up Chinese, equal for equal random states: names, places and events are invented
_WHO = "陈教练 何工程师 小学的校长 渡口的摆渡人 两位编剧 值夜班的护士 修钟表的老人 合作社的会计 邻县的诗人 养蜂人 年轻的裁缝 地质队的队员".split()
_WHEN = "立秋那天 天还没亮 汛期过后 上个礼拜三 停电的夜里 赶集的日子 收工以后 第一场雪落下时 会议结束前 孩子们睡着以后".split()
_WHAT = (
    "把仓库里的旧机器重新装了一遍 在墙上画出一条水位线，旁边写着年份 和镇上的人商量怎样把路修得宽一些 读完了三十年前的一摞日记 "
    "给每一棵树都挂上了写着名字的木牌 试着用新的办法记录潮汐，结果比从前准确得多 把剩下的面粉分成了七份 解释说账目里少掉的那一笔其实是运费 "
    "用两个下午搭好了戏台，又用一个晚上拆掉 沿着铁路走了十几里，只为看一眼新桥 建议大家先把井修好，再谈别的事情 听见远处有人在吹口琴"
).split(" ")
_END = (
    "这个办法后来传到了别的村子。 谁都没有料到会是这样。 有人赞成，也有人摇头。 报上只登了短短一行。 至于原因，要到第二年春天才弄清楚。 "
    "他把这句话写在了本子的最后一页。 灯一直亮到后半夜。 这是许多年来的第一次。 桌上的茶已经凉了。 数字虽小，意义却不小。"
).split(" ")


class Web:
    """All hosts of one port, and the truth about them."""

    def __init__(self, port: int, round_number: int = 1) -> None:
        self.port = port
        self.tls_port = 0
        self.ca_file: str | None = None
        self.sites: dict[str, Site] = {}
        self.truth = Truth()
        self.seeds: list[str] = []
        self.fixed: dict[str, str] = {}  # hosts whose address is not handed out by us
        self.round = round_number

    def site(self, host: str, robots: Reply | str | None = None, is_seed: bool = True) -> Site:
        """A new host, at whose home a crawl begins. `robots`: rules, another answer than 200 text/plain, or None for
        404."""
        site = Site(self, host)
        if isinstance(robots, str):
            robots = Answer(robots.encode(), content_type="text/plain")
        if robots is not None:
            site.serve("/robots.txt", robots)
        self.seeds += [site.url()] * is_seed
        self.sites[host] = site
        return site

    def url(self, host: str, target: str = "/") -> str:
        """The URL of a page, as a crawler normalises it."""
        return f"http://{host}:{self.port}{target}"

    def add_family(
        self, pattern: str, case: str, group: str, fates: Iterable[str], least: int = 0, most: int | None = None
    ) -> None:
        """Expect something of all URLs that match in full and are not named."""
        self.truth.families.append(Family(re.compile(pattern), group, case, frozenset(fates), least, most))


class Site:
    """One host: replies by target, and what to say to targets that have none."""

    def __init__(self, web: Web, host: str) -> None:
        self.web = web
        self.host = host
        self.replies: dict[str, Computed] = {}
        self.fallback: Computed = lambda asked: NOT_FOUND

    def url(self, target: str = "/") -> str:
        """The URL of a page of this host."""
        return self.web.url(self.host, target)

    def respond(self, asked: Asked) -> Reply:
        """The answer to a request."""
        if asked.target == "/robots.txt" and asked.target not in self.replies:
            return NOT_FOUND
        return self.replies.get(asked.target, self.fallback)(asked)

    def serve(self, target: str, reply: Reply) -> None:
        """A page of which nothing is expected, or which is expected elsewhere."""
        self.replies[target] = lambda asked: reply

    def add(
        self,
        target: str,
        reply: Reply,
        case: str,
        group: str = ALLOWED,
        fates: Iterable[str] = ("fetched",),
        least: int = 1,
        most: int = 1,
    ) -> None:
        """A page that is there, and what is expected of it."""
        self.serve(target, reply)
        if self.web.round > 1 and set(fates) == {"fetched"}:
            fates = KEPT  # the second time its payload is known
        kept = isinstance(reply, Answer) and reply.status == 200 and set(fates) <= KEPT
        digest = digest_of(reply.body) if kept and isinstance(reply, Answer) else None
        self.expect(target, case, group, fates, least, most, digest)

    def add_either(self, targets: Sequence[str], reply: Answer, case: str) -> None:
        """One page with several addresses, any one of which a crawler may prefer: one of them is asked for, once."""
        for target in targets:
            self.serve(target, reply)
        self.family("|".join(map(re.escape, targets)), case, ALLOWED, (*KEPT, UNKNOWN), least=1, most=1)

    def add_computed(
        self,
        target: str,
        reply: Computed,
        case: str,
        group: str = ALLOWED,
        fates: Iterable[str] = ("fetched",),
        least: int = 1,
        most: int = 1,
    ) -> None:
        """A page that is not the same for every request."""
        self.replies[target] = reply
        self.expect(target, case, group, fates, least, most)

    def expect(
        self,
        target: str,
        case: str,
        group: str,
        fates: Iterable[str],
        least: int = 1,
        most: int = 1,
        digest: str | None = None,
    ) -> None:
        """Expect something of a URL, whether or not there is a page."""
        self.web.truth.add(Expected(self.url(target), group, case, frozenset(fates), least, most, digest))

    def forbid(self, target: str, reply: Reply, case: str, fates: Iterable[str], most: int = 0) -> None:
        """A page that is there, and that nobody may ask for (more than `most` times)."""
        self.serve(target, reply)
        self.expect(target, case, FORBIDDEN, fates, 0, most)

    def family(
        self, pattern: str, case: str, group: str, fates: Iterable[str], least: int = 0, most: int | None = None
    ) -> None:
        """Expect something of all targets of this host that match and are not named."""
        self.web.add_family(f"{re.escape(self.url(''))}(?:{pattern})", case, group, fates, least, most)


def text_of(key: str, paragraphs: int = 4) -> list[str]:
    """Paragraphs of made-up Chinese, of each key others."""
    chance = random.Random(key)
    return ["".join(sentence(chance) for _ in range(3)) for _ in range(paragraphs)]


def html_of(
    key: str,
    links: Sequence[str] = (),
    head: str = "",
    paragraphs: Sequence[str] | None = None,
    lang: str = "zh-CN",
    extra: str = "",
) -> str:
    """A page of made-up Chinese with these links; an entry of `links` is an address, or an element as it stands."""
    title = headline(random.Random(f"title {key}"))
    blocks = "".join(f"<p>{block}</p>\n" for block in (text_of(key) if paragraphs is None else paragraphs))
    items = "".join(f"<li>{link if link.startswith('<') else anchor(link)}</li>\n" for link in links)
    return (
        f'<!DOCTYPE html><html lang="{lang}"><head><title>{title}</title>{head}</head><body><h1>{title}</h1>\n'
        f"{blocks}{extra}<ul>{items}</ul></body></html>"
    )


def anchor(address: str, attributes: str = "", text: str = "") -> str:
    """A link."""
    return f'<a href="{escape(address)}" {attributes}>{text or headline(random.Random(address))}</a>'


def article(key: str, links: Sequence[str] = (), head: str = "") -> Answer:
    """A plain page: UTF-8, labelled so."""
    return page(html_of(key, links, head))


def sentence(chance: random.Random) -> str:
    """A made-up sentence with its end mark, and sometimes a second one."""
    text = f"{chance.choice(_WHEN)}，{chance.choice(_WHO)}{chance.choice(_WHAT)}，花了{chance.randint(2, 90)}天。"
    return text + (chance.choice(_END) if chance.random() < 0.6 else "")


def headline(chance: random.Random) -> str:
    """A made-up headline, as links show it."""
    return f"{chance.choice(_WHO)}{chance.choice(_WHAT).split('，')[0]}"
