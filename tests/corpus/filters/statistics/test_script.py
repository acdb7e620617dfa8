"""Chinese told from its neighbours without a model, and the policy for Simplified and Traditional."""

from __future__ import annotations

import pyarrow as pa
import pytest

from corpus.filters import Filter, edits, load
from corpus.filters.edits import Edits, ScriptPolicy

CHINESE = {
    "simplified": "清晨的集市上，卖菜的老人把青菜一捆一捆摆好，见到熟人便招呼一声，说今天的萝卜甜，买两根回去炖汤正合适。走到桥边，孩子们正在看龙舟。",
    "traditional": "清晨的市集裡，賣菜的老人把青菜一捆一捆擺好，見到熟人便招呼一聲，說今天的蘿蔔甜，買兩根回去燉湯正合適。走到橋邊，孩子們正在看龍舟。",
    "cantonese": "今朝早去街市，個阿伯話啲菜好新鮮，唔使驚，佢仲話如果我哋聽日再嚟，會平啲畀我哋。我諗住買兩斤返屋企煲湯，點知落緊雨，冇帶遮，惟有喺度等。",
    "classical": "子曰：「學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？」有子曰：「其為人也孝弟，而好犯上者，鮮矣；不好犯上，而好作亂者，未之有也。」",
    "quotes_japanese": "他在东京住了三年，回来以后常说“頑張って”这个词，意思是加油。招牌上写着“ラーメン”，其实就是面条，孩子们学会了几个假名，写在作业本的背面，老师看了也笑。",
    "names_of_japan": "这本书讲的是渡边先生在广岛的经历，原名《広島の記録》，后来译成中文，由一家出版社印行。书里说到樱花、图书馆和车站，还有一位老邮差每天走过的那条路。",
}
OTHERS = {
    "japanese": "朝の市場では、野菜を売るおじいさんが一束ずつ青菜を並べ、知り合いを見かけると声をかけていた。今日の大根は甘いから、二本買って帰って煮物にするといいと言う。橋のそばでは子供たちが船を見ていた。",
    "japanese_titles": "東京駅前広場整備計画発表\n広島県立図書館開館時間変更\n国際経済会議、来週開催へ\n鉄道会社、運賃値上検討開始\n両国関係改善、外相会談実現\n気象庁、大雪警報発令、交通機関乱\n",
    "korean": "아침 시장에서 채소를 파는 할아버지는 배추를 한 단씩 늘어놓고 아는 사람을 보면 인사를 건넸다. 오늘 무가 달다며 두 개 사 가서 국을 끓이라고 했다. 다리 옆에서는 아이들이 배를 "
    "보고 있었다.",
    "korean_with_hanja": "孔子(공자)는 學而時習之(학이시습지)라고 말했다. 배우고 때때로 익히면 또한 기쁘지 아니한가。벗이 먼 곳에서 찾아오면 또한 즐겁지 아니한가。",
    "english": "In the morning market an old man lays out his vegetables bundle by bundle and greets everyone he "
    "knows. The radish is sweet today (萝卜), he says, take two of them home for the soup.",
}  # fmt: skip


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_of_all_kinds_stays(web_zh: Filter, name: str) -> None:
    (verdict,) = web_zh.apply([CHINESE[name]])
    assert verdict.kept, (verdict.rule, verdict.value)


@pytest.mark.parametrize("name", OTHERS)
def test_other_languages_go_by_their_script(web_zh: Filter, name: str) -> None:
    (verdict,) = web_zh.apply([OTHERS[name]])
    assert verdict.rule in {
        "script.kana_ratio",
        "script.hangul_ratio",
        "script.japanese_han_ratio",
        "characters.han_ratio",
    }


def convert(text: str, target: ScriptPolicy) -> tuple[str, list[str]]:
    log = Edits()
    result = edits.convert_script(pa.array(["前後", text], pa.large_string()).slice(1), target, log)
    return result[0].as_py(), [edit["kind"] for edit in log.column(1)[0].as_py() or []]


@pytest.mark.parametrize(
    ("traditional", "simplified"),
    [
        ("她的頭髮很長，公司的發展很快", "她的头发很长，公司的发展很快"),
        ("皇后走在後面，太后說了話", "皇后走在后面，太后说了话"),
        ("他說三公里外的村子裏", "他说三公里外的村子里"),
        ("乾隆皇帝說曬乾的菜，幹部干涉", "乾隆皇帝说晒干的菜，干部干涉"),
    ],
)
def test_conversion_goes_by_phrases(traditional: str, simplified: str) -> None:
    assert convert(traditional, "simplified") == (simplified, ["script.t2s"])
    assert convert(simplified, "traditional") == (traditional, ["script.s2t"])
    assert convert(simplified, "simplified") == (simplified, [])
    assert convert(traditional, "traditional") == (traditional, [])


def test_both_forms_of_inside_become_one() -> None:
    assert convert("村子裡說，村子裏說", "simplified")[0] == "村子里说，村子里说"


def test_a_quotation_in_the_other_script_is_left_alone() -> None:
    text = "他说这本书的标题《論語》应该这样写，我们都赞成。"
    assert convert(text, "simplified") == (text, [])
    assert convert("人之初，性本善", "traditional") == ("人之初，性本善", [])  # no sign of either script


def test_statistics_are_of_the_converted_text() -> None:
    table = load("web_zh", ["filter.edit.script=simplified"]).apply([CHINESE["traditional"]]).table
    assert table["script.traditional_ratio"].to_pylist() == [0.0]
    assert table["edits"].to_pylist() == [[{"kind": "script.t2s", "line": None, "count": 1}]]


def test_traditional_documents_can_be_dropped() -> None:
    judge = load("web_zh", ["filter.script.traditional_ratio.max=0.5"])
    verdicts = list(judge.apply([CHINESE["simplified"], CHINESE["traditional"], CHINESE["classical"]]))
    assert [verdict.rule for verdict in verdicts] == [None, "script.traditional_ratio", "script.traditional_ratio"]
