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
HEADLINES = "\n".join(document(seed, 1)[:16] for seed in range(40))


def keeps(recipe: str, text: str) -> bool:
    return bool(load(recipe).apply([text]).kept[0])


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_keeps_prose_and_drops_noise(name: str) -> None:
    assert keeps(name, document(1, 20))
    for noise in ("", "首页 登录 注册", "锟斤拷" * 400, "lorem ipsum dolor " * 80, "开发票加微信" * 60):
        assert not keeps(name, noise), noise[:20]


@pytest.mark.parametrize(
    ("text", "recipe", "other"),
    [
        (QUATRAIN, "classical_zh", "web_zh"),
        (REFRAIN, "classical_zh", "books_zh"),
        (UNMARKED, "classical_zh", "news_zh"),
        (POST, "forum_zh", "web_zh"),
        (document(2, 20).replace("。", "，"), "books_zh", "news_zh"),
        (document(3, 4) + "\n" + HEADLINES, "forum_zh", "news_zh"),
    ],
)
def test_a_text_finds_its_recipe(text: str, recipe: str, other: str) -> None:
    assert keeps(recipe, text)
    assert not keeps(other, text)
