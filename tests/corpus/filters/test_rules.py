"""Every rule of web_zh through the public door: one document it drops, one like it that it keeps."""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest

from corpus.filters import STATISTICS, Filter
from corpus.filters.decide import PASSES, first_failed
from corpus.filters.measure import measure_all
from corpus.filters.statistic import Batch
from tests.corpus.texts import document

GOOD = document(1)
VEGETABLES = ("白菜", "萝卜", "土豆", "青椒", "茄子", "南瓜", "冬瓜")
CODE = "\n".join(
    f"    value_{i} = compute(value_{i - 1}, factor={i})  # 第{i}步：把上一步的结果乘以系数，再写回表里。"
    for i in range(1, 12)
)
TANG = (
    "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。\n\n"
    "白日依山尽，黄河入海流。\n欲穷千里目，更上一层楼。\n\n春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。"
)
ANALECTS = (
    "子曰：「學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？」有子曰：「其為人也孝弟，"
    "而好犯上者，鮮矣；不好犯上，而好作亂者，未之有也。君子務本，本立而道生。孝弟也者，其為仁之本與！」"
)
WORKSHOP = (
    "华昌机械厂专业生产各种输送设备，主营皮带输送机、刮板输送机、斗式提升机。厂家直销，价格优惠，质量可靠，欢迎新老客户来电洽谈订购。"
    "本公司秉承诚信为本、客户至上的经营理念，产品畅销全国各地，深受广大用户好评。热诚欢迎各界朋友前来参观、考察、洽谈业务。"
    "公司拥有先进的生产设备和雄厚的技术力量，通过质量管理体系认证，可按客户要求定做，全国联保，免费送货上门安装，现货供应，量大从优。"
)
BETS = (
    "注册即送彩金88元，真人百家乐、时时彩、北京赛车应有尽有，首存送百分之百，流水一倍即可提款，代理月返佣高达百分之六十。"
    "尊敬的会员，每日签到领取红包，体育投注返水无上限，客服二十四小时在线，存款三十秒到账，大额无忧。"
)
FULL_WIDTH = (
    "（一）本办法所称“文海”，是指……；（二）收费标准为１２３元／次，详见《附录》——“另行通知”的除外！（三）其他情形：从其约定。"
    * 2
)


def _shuffled(text: str) -> str:
    characters = [c for c in text if c != "\n"]
    random.Random(0).shuffle(characters)
    return "".join(characters)


def _mojibake(text: str) -> str:
    return text.encode().decode("gb18030", "replace")


UNMARKED = "唔该晒 大家帮手睇下呢部机系咪坏咗 我噚日先至买返嚟嘅 开咗机冇几耐就自己熄 问过铺头佢话要等师傅返嚟先 有冇人试过咁嘅情况"
SCRIPT = '<script src="a.js" type="text/javascript"></script>\n<link href="a.css">\nvar x = {a: 1, b: f(2)};\n'

DROPPED = {
    "length.num_chars": ["床前明月光，疑是地上霜。", document(2) * 400],
    "characters.han_ratio": [
        "The quick brown fox jumps over the lazy dog, and the dog does not care at all. 完。" * 5,
        "<script>var a=1;function f(b){return a+b}</script>" * 30,
        GOOD.encode("gbk").decode("latin-1"),
    ],
    "characters.mojibake_ratio": [_mojibake(GOOD), GOOD + "锟斤拷锟斤拷烫烫烫", GOOD + "中文网站".encode("gbk").decode("latin-1")],
    "characters.rare_han_ratio": [_mojibake(GOOD)],
    "characters.pinyin_gloss_ratio": [GOOD[:200].replace("，", "開發(fā)，")],
    "characters.escape_ratio": [
        document(1, 4).replace("，", "&nbsp;&#12288;").replace("。", "&quot;&#12290;&nbsp;"),
        GOOD[:60] + "\\u4e2d\\u6587" * 30,
    ],
    "characters.unreadable_ratio": [GOOD.replace("，", "\ufffd"), GOOD.replace("，", "\ue012")],
    "characters.punctuation_per_han": ["苹果 手机 电视 冰箱 空调 洗衣机 电脑 相机 耳机 音箱 键盘 鼠标 " * 6],
    "characters.function_han_ratio": [SCRIPT * 9 + "\n//全局变量配置，导航分类，头部广告"],
    "blocks.code_ratio": [SCRIPT * 20 + "// 配置全部的变量，以及它的说明，还有我们的要求"],
    "blocklist.site_talk_ratio": ["首页\n新闻\n体育\n加入收藏夹\n友情链接\n广告服务热线\n欢迎关注我们的微信公众号，免费领取优惠券！\n联系客服微信，扫码立即下载客户端，注册即送大礼包。"],
    "characters.digit_ratio": ["期号：" + "，".join(f"第{i}期{i * 7919 % 100000:05d}" for i in range(2000, 2060)) + "。"],
    "characters.ascii_punctuation_ratio": ["<甲><<乙>>，<<丙>><<丁>>。" * 12],
    "characters.symbol_ratio": ["★今☆日★特☆价，★明☆日★更☆低。" * 8],
    "characters.stray_mark_ratio": [_shuffled(GOOD), "好的。。。，，，来吧，，。。。" * 3 + GOOD],
    "characters.isolated_latin_ratio": ["x".join(GOOD[i : i + 6] for i in range(0, len(GOOD), 6))],
    "script.kana_ratio": ["吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で泣いていた。"],
    "script.hangul_ratio": ["孔子曰，孔子는 말했다。배우고 때때로 익히면 기쁘지 아니한가。벗이 먼 곳에서 찾아오면 즐겁지 아니한가。"],
    "script.japanese_han_ratio": ["東京駅前広場整備計画、来年度発表。\n広島県立図書館、開館時間変更。\n国際経済会議、来週開催。\n鉄道会社、運賃値上検討開始。"],
    "lines.label_char_ratio": ["首页\n新闻\n体育频道\n财经频道\n汽车之窗\n旅游天地\n健康生活\n联系我们\n网站地图\n加入收藏\n" + "今日要闻：天气晴，最高温度二十度。"],
    "lines.like_line_ratio": [
        GOOD[:80] + "".join(f"\n{name}，每斤{i * 7 % 13}.{i}元" for i, name in enumerate(VEGETABLES))
    ],
    "lines.duplicate_line_char_ratio": ["\n".join([document(5, 2), document(6, 2)] * 2 + [document(6, 2)] * 2)],
    "repetition.top_2_gram_ratio": ["".join(f"哈哈{c}，哈哈" for c in "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏。")],
    "repetition.top_4_gram_ratio": ["".join(f"人山人海{c}，{c}" for c in "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往。")],
    "repetition.duplicate_10_gram_ratio": [document(4, 2) * 6],
    "repetition.unigram_entropy": ["天地，人和。" * 2 + "天人，地和。和人天地，地天人和。人天地和，和地天人。天和地人，人和天地。地人和天，天地人和。"],
    "repetition.longest_run_ratio": [GOOD + "啊" * 200],
    "quality.bigram_association": [_shuffled(GOOD), _shuffled(ANALECTS)],
    "quality.score": [WORKSHOP, BETS],
    "blocklist.blocklist_ratio": [GOOD[:200] + "需要代開發票的，加ＶＸ，量大从优，货到付款。"],
    "blocklist.dead_page_ratio": ["页面未找到\n抱歉，您访问的页面不存在或已被移除，请检查网址是否正确。\n您可以返回首页，或者稍后再试，谢谢您的支持与理解！\n返回首页"],
    "personal.total": [GOOD + "".join(f"王先生，138{number:08d}。" for number in range(201))],
}  # fmt: skip

KEPT = {
    "length.num_chars": [TANG, GOOD],
    "characters.han_ratio": [CODE],
    "characters.mojibake_ratio": [GOOD + "李锟是这家café的naïve客人，点了很烫的咖啡，又被烫了一次。", CODE],
    "characters.rare_han_ratio": [ANALECTS, "饕餮、貔貅、魑魅魍魉，都是传说里的名字；写起来笔画很多，念起来也不容易，老师让我们每个抄十遍，第二天听写。"],
    "characters.pinyin_gloss_ratio": [GOOD + "李儇(Xuān)应用(app)小(xiǎo)白(bái)兔(tù)。"],
    "characters.escape_ratio": [GOOD + "空格写作&nbsp;，地址是 https://zh.example.org/%E4%B8%AD 。R&D; 占5%。"],
    "characters.unreadable_ratio": [GOOD + "缺字\ufffd。"],
    "characters.punctuation_per_han": [CODE, UNMARKED],
    "characters.function_han_ratio": [CODE],
    "blocks.code_ratio": [CODE],
    "blocklist.site_talk_ratio": [GOOD],
    "characters.digit_ratio": ["1949年10月1日，1978年12月18日，2001年12月11日，2008年8月8日：这些日子写在教室的墙上，"
        "学生们一个一个念，念到自己出生的那一年就停下来，问后来怎么样了，老师说，你们自己去找答案。"],
    "characters.ascii_punctuation_ratio": [CODE],
    "characters.symbol_ratio": ["今天天气很好👍，我们去爬山，路上看见三只松鼠，一只不怕人，走近了也不跑，大家都笑了。❤️山顶的风很大，帽子吹走了两顶。"],
    "characters.stray_mark_ratio": ["清晨。，老师把旧地图摊在桌上，用铅笔标出每一条小路。这件事后来被许多人提起，没有人觉得奇怪，大家笑了。"],
    "characters.isolated_latin_ratio": ["要显示A列，请点击B列的标签，然后把选区扩展到C列。如果A列之前被隐藏，现在想让它显示，请选择从B列到D列的区域。"],
    "script.kana_ratio": ["日文的“の”相当于中文的“的”，招牌上常见“優の良品”这样的写法，其实并不符合日文语法，只是看起来有一点东洋的味道罢了。"],
    "script.hangul_ratio": ["“안녕”是韩语里朋友之间的问候，见面和分别都可以说；对长辈要用更长的敬语，否则会显得没有礼貌，初学者常常弄错。"],
    "script.japanese_han_ratio": [ANALECTS, "渡边先生在广岛的车站旁开了一家图书馆，门口的牌子上写着“広島図書館”。" + GOOD],
    "lines.label_char_ratio": [TANG, "目录\n前言\n" + GOOD],
    "lines.like_line_ratio": [CODE, GOOD + "\n1949年 5千万\n1978年 9千万\n2000年 12千万"],
    "lines.duplicate_line_char_ratio": [CODE + "\n}\n}\n}\n}\n}", document(7) + "\n" + document(7)[:60]],
    "repetition.top_2_gram_ratio": ["数据透视图指数据范围来自数据透视表的图表。与静态表格不同，当行列数目恒定时，数据透视表的尺寸也可能随设置而变。"],
    "repetition.top_4_gram_ratio": ["采莲曲：江南可采莲，莲叶何田田。鱼戏莲叶间，鱼戏莲叶东，鱼戏莲叶西，鱼戏莲叶南，鱼戏莲叶北。古人以此为乐，今人读来如见其景。"],
    "repetition.duplicate_10_gram_ratio": [document(4, 2) + document(4, 2) + document(5, 2)],
    "repetition.unigram_entropy": [TANG],
    "repetition.longest_run_ratio": [GOOD + "\n" + "=" * 40],
    "quality.bigram_association": [TANG, ANALECTS],
    "quality.score": [GOOD, ANALECTS],
    "blocklist.blocklist_ratio": ["警方提醒：不要相信代开发票的广告。" + GOOD],
    "blocklist.dead_page_ratio": [GOOD + "访问的页面不存在时，服务器返回404错误，提示用户登录。"],
    "personal.total": [GOOD + "联系人王先生，手机13800138000，邮箱wang@example.com。"],
}  # fmt: skip


def test_every_rule_has_its_fixtures(web_zh: Filter) -> None:
    assert {rule.key for rule in web_zh.rules} - {"url.blocked"} == set(DROPPED) == set(KEPT)  # test_url.py has it


@pytest.mark.parametrize("rule", DROPPED)
def test_dropped(rule: str, web_zh: Filter) -> None:
    # the rule alone, so that a fixture cannot hide behind another rule
    alone = [limit for limit in web_zh.limits if limit.key == rule]
    for text, verdict in zip(DROPPED[rule], web_zh.apply(DROPPED[rule]), strict=True):
        assert not verdict.kept
        batch = Batch(pa.array([text], pa.large_string()), web_zh.resources)
        (failed,) = first_failed(measure_all(batch), alone, 1)
        assert failed != PASSES, text[:40]
        if verdict.rule == rule:
            assert alone[failed].threshold == verdict.threshold
            assert alone[failed].excludes(np.array([verdict.value]))[0]


@pytest.mark.parametrize("rule", KEPT)
def test_kept(rule: str, web_zh: Filter) -> None:
    for verdict in web_zh.apply(KEPT[rule]):
        assert verdict.kept, (verdict.rule, verdict.value, verdict.text[:40])
        assert (verdict.rule, verdict.value, verdict.threshold, verdict.bound) == (None, None, None, None)


@pytest.mark.parametrize(
    "text", [TANG, ANALECTS, FULL_WIDTH, CODE, GOOD], ids=["tang", "analects", "full_width", "code", "good"]
)
def test_kept_byte_for_byte(text: str, web_zh: Filter) -> None:
    (verdict,) = web_zh.apply([text])
    assert verdict.kept, (verdict.rule, verdict.value)
    assert verdict.text == text


def test_three_hundred_copies_are_seen_as_such(web_zh: Filter) -> None:
    (verdict,) = web_zh.apply([document(9, 4) * 300])
    assert not verdict.kept
    (verdict,) = web_zh.apply([("今天天气很好，我们去爬山。\n") * 300])
    assert verdict.rule == "lines.duplicate_line_char_ratio"
    assert verdict.value == pytest.approx(299 / 300)


def test_every_statistic_has_a_unit_and_an_example_or_a_reference() -> None:
    is_told = {key: re.search(r">>>|As `|arXiv:\d", entry.doc) for key, entry in STATISTICS.items() if entry.unit}
    assert [key for key in STATISTICS if not is_told.get(key)] == []
