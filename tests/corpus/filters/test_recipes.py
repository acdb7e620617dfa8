"""The built-in recipes: each keeps what it is for where another would not, and none keeps what nobody wants."""

from __future__ import annotations

import pytest

from corpus.engine.config import RECIPES
from corpus.filters import load
from tests.corpus.texts import document

NAMES = sorted(path.stem for path in RECIPES.glob("*.toml"))
QUATRAIN = "床前明月光，\n疑是地上霜。\n舉頭望明月，\n低頭思故鄉。"
UNMARKED = "大學之道在明明德在親民在止於至善知止而后有定定而后能靜靜而后能安安而后能慮慮而后能得\n"
REFRAIN = "關關雎鳩，在河之洲。\n窈窕淑女，君子好逑。\n參差荇菜，左右流之。\n窈窕淑女，寤寐求之。\n參差荇菜，左右采之。\n窈窕淑女，琴瑟友之。"
POST = "楼主这个问题我也遇到过 后来换了根网线就好了 供参考"
PROSE = (
    "傍晚的时候，渡船从对岸慢慢划过来，船头坐着一位卖菱角的老人。他说今年雨水足，湖里的水草长得比人还高，孩子们都不敢下去游泳。"
    "岸边的茶馆早早点起了灯，墙上挂着几幅旧地图，上面标着已经消失的村庄和古道。有人打听明天的天气，店主摇摇头，只把热水添满。\n"
    "夜里果然刮起大风，屋檐下的铁铃响个不停。第二天清晨，我们踩着落叶走上山坡，看见雾气从谷底升起来，远处的寺院若隐若现。"
)
HEADLINES = "\n".join(document(seed, 1)[:16].replace("，", "") for seed in range(40))


def keeps(recipe: str, text: str) -> bool:
    return bool(load(recipe).apply([text]).kept[0])


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_keeps_prose_and_drops_noise(name: str) -> None:
    assert keeps(name, PROSE if name == "fineweb2_zh" else document(1, 20))  # which repeats its phrases
    menu = "首页" if name == "forum_zh" else "首页 登录 注册"  # a post of eight characters is one
    for noise in ("", menu, "锟斤拷" * 400, "lorem ipsum dolor " * 80, "开发票加微信" * 60):
        assert not keeps(name, noise), noise[:20]


@pytest.mark.parametrize(
    ("text", "recipe", "other"),
    [
        (QUATRAIN, "web_zh", "news_zh"),
        (REFRAIN, "classical_zh", "books_zh"),
        (UNMARKED, "classical_zh", "news_zh"),
        (POST, "forum_zh", "news_zh"),
        (document(2, 20).replace("。", "，\n"), "books_zh", "news_zh"),
        (document(3, 4) + "\n" + HEADLINES, "forum_zh", "news_zh"),
    ],
)
def test_a_text_finds_its_recipe(text: str, recipe: str, other: str) -> None:
    assert keeps(recipe, text)
    assert not keeps(other, text)


MENUS = [
    "\n".join(
        f"- {line}" for line in ("首页", "新闻中心", "产品展示", "联系我们", "人才招聘", "在线留言", "友情链接") * 3
    ),
    "\n".join(
        f"· {line}" for line in ("首页", "新闻中心", "产品展示", "联系我们", "人才招聘", "在线留言", "友情链接") * 3
    ),
    "首页 | 新闻 | 体育 | 财经 | 汽车\n房产 | 教育 | 旅游 | 健康 | 游戏\n" * 4,
    "网站首页，公司简介，产品中心，新闻动态，联系我们。",
]


@pytest.mark.parametrize("menu", MENUS)
def test_a_menu_in_another_form_is_a_menu(menu: str) -> None:
    assert not keeps("web_zh", menu)


@pytest.mark.parametrize("text", ["为什么我登录后显示页面不存在？", "请问输入验证码后一直提示错误，怎么办？"])
def test_a_post_about_a_dead_page_is_none(text: str) -> None:
    assert keeps("forum_zh", text)
