"""Blocks: each kind of line told from its neighbours, and what only looks like it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.filters import measure
from corpus.filters.measure import STATISTICS

KINDS = ("code", "formula", "table", "list", "verse", "dialogue")
MENU = "首页\n新闻\n体育频道\n财经频道\n汽车世界\n旅游天地\n健康生活\n网站地图\n加入收藏\n友情链接"
LYRICS = "你问我爱你有多深\n我爱你有几分\n我的情也真\n我的爱也真\n月亮代表我的心"
PROSE = "地里的土豆收完以后，大家坐在田埂上喝水。老师说，这样的天气还要晴好几天，所以不用着急，慢慢地往回走就是了。"
SONGS = "关关雎鸠，在河之洲。窈窕淑女，君子好逑。参差荇菜，左右流之。窈窕淑女，寤寐求之。"
FENCED = "例如：\n```sh\nmake all\n# 全部都要\n```\n完成。"
SHOWN = "打开文件：\nwith open('a.txt') as file:\n    for line in file:\n        print(line)\n        # 去掉空格\n这样就好。"


def shares(text: str) -> dict[str, float]:
    return {kind: round(float(measure(f"blocks.{kind}_ratio", [text])[0]), 2) for kind in KINDS}


@pytest.mark.parametrize(
    ("text", "kind", "least", "most"),
    [
        (FENCED, "code", 0.5, 0.75),
        (SHOWN, "code", 0.7, 0.85),
        ("$ git clone x\n$ cd x\n", "code", 1, 1),
        ("见 https://a.example/b.c?d=e&f=g() 的说明", "code", 0, 0),
        ("He said nothing, and went home. 他回家了。", "code", 0, 0),
        ("I don't know who's there, e.g. the \"old\" man; it is late, and nobody has come so far.", "code", 0, 0),
        ("今天我去了北京,看了长城,吃了烤鸭.\n昨天他来了这里,见了朋友,喝了热茶.", "table", 0, 0),
        ("从 $100 涨到 $200+，再到 $300=。", "formula", 0, 0),
        ("~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\nSee the next page.", "code", 0, 0.7),
        ("开头见\\begin的说明。\n这一行没有公式，只有字。\nSee you there.", "formula", 0, 0.4),
        ("设 $f(x)=x^2+1$，则 $f'(x)=2x$。", "formula", 0.5, 0.9),
        ("由此得\n$$\n\\int_0^1 x dx\n$$\n证毕。", "formula", 0.6, 0.9),
        ("\\begin{aligned}\na &= b \\\\\n\\end{aligned}", "formula", 1, 1),
        ("每斤 $5 到 $7 元", "formula", 0, 0),
        ("| 书 | 篇 |\n|---|---|\n| 论语 | 20 |", "table", 1, 1),
        ("序号\t单位\t金额\n1\t教育局\t120.50\n2\t卫生局\t88.00", "table", 1, 1),
        ("这里 只有 一个 一个 的 空格", "table", 0, 0),
        ("用料\n- 冰糖 30克\n- 八角 2个\n1. 切块\n（二）下锅\n③ 收汁", "list", 0.9, 1),
        ("3.5 元一斤，2.5 元两斤。", "list", 0, 0),
        ("2019年的夏天", "list", 0, 0),
        (LYRICS, "verse", 1, 1),
        (MENU, "verse", 0, 0),
        (SONGS, "verse", 1, 1),
        (PROSE, "verse", 0, 0),
        ("王利发：您外边遛遛吧！\n唐铁嘴：送碗茶喝吧！\n王利发：算了吧！", "dialogue", 0.6, 0.7),
        ("“你去哪里？”\n“回家。”他说。", "dialogue", 1, 1),
        ("注意：不要着急。\n说明：见下页。", "dialogue", 0, 0),
    ],
)
def test_share(text: str, kind: str, least: float, most: float) -> None:
    assert least <= shares(text)[kind] <= most


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROSE, "prose"),
        (LYRICS, "verse"),
        (SHOWN, "code"),
        ("甲\t乙\t丙\n1\t2\t3", "table"),
        ("“你去哪里？”\n“回家。”", "dialogue"),
        ("- 冰糖\n- 八角\n- 桂皮", "list"),
        ("", "prose"),
    ],
)
def test_genre(text: str, expected: str) -> None:
    assert measure("blocks.genre", [text]).tolist() == [expected]


def test_han_in_code_is_no_chinese_text() -> None:
    code = "```\nif a:\n        print('时习', file=sys.stderr, end=' ')\n\n```\n"
    alone, beside, without = measure("characters.han_ratio", [code * 9, code * 9 + PROSE, PROSE])
    assert (alone, beside) == (0, without)


def test_labels_in_lists_are_no_menu() -> None:
    menu, items = measure("lines.label_char_ratio", [MENU, "\n".join(f"- {line}" for line in MENU.split("\n"))])
    assert (menu, items) == (1, 0)


LINES = st.lists(
    st.text(st.sampled_from("的我天，。：:“」$\\[]{}()=|`~#-*1a \t\u3000_<>/;.^&'\"$"), max_size=12), max_size=12
)


@given(st.lists(LINES.map("\n".join), min_size=1, max_size=4))
def test_any_lines(texts: list[str]) -> None:
    together = {kind: measure(f"blocks.{kind}_ratio", texts) for kind in KINDS}
    for kind, values in together.items():
        assert ((values >= 0) & (values <= 1)).all(), kind
        alone = np.concatenate([measure(f"blocks.{kind}_ratio", [text]) for text in texts])
        assert np.array_equal(alone, values), f"{kind} depends on the batch"
    assert set(measure("blocks.genre", texts)) <= set(STATISTICS["blocks.genre"].labels)


def test_formulas_are_counted_in_characters_and_their_han_is_no_text() -> None:
    texts = ["售价$一二三四五六七八=九十$元，可以买到很多东西，也可以什么都不买，只是看一看就走。", "价格$一二三=九十$"]
    assert measure("blocks.formula_ratio", texts).round(3).tolist() == [0.302, 0.8]
    assert measure("characters.han_ratio", texts).round(3).tolist() == [0.867, 1.0]


def test_verse_counts_once_whether_by_clauses_or_by_lines() -> None:
    quatrain = "床前明月光，\n疑是地上霜。\n举头望明月，\n低头思故乡。"
    alone, beside = measure("blocks.verse_ratio", [quatrain, quatrain + "\n" + PROSE])
    assert (alone, beside.round(2)) == (1, 0.31)
    assert measure("blocks.genre", [quatrain + "\n" + PROSE]).tolist() == ["prose"]
    assert measure("blocks.verse_ratio", ["雨洗山光綠浄，波涵天影清空。\n草際自浮鵝鴨，柳陰分坐兒童。"]) == 1


def test_a_cell_behind_a_link_is_one() -> None:
    assert measure("blocks.table_ratio", ["http://a.cn\t书\t篇\nhttp://b.cn\t书\t篇"]) == 1


def test_white_space_on_a_line_of_its_own_changes_no_other_line() -> None:
    rows = ["甲\t书\t篇", "乙\t书\t篇", "读书的人很多，写书的人很少。"]
    apart = measure("blocks.table_ratio", ["\n".join(rows), "\n \t  \t \n".join(rows)])
    assert apart[0] == apart[1] > 0
