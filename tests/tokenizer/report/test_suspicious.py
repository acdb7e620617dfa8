"""Suspicious pieces: each rule names what it should and leaves what looks like it."""

from __future__ import annotations

import unicodedata

import opencc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.report.suspicious import _spam_words, suspicious_pieces

NAMED = {
    "spam": """天天中彩票 ▁彩神争霸大发快三 重庆时时彩的 北京赛车pk10 北京赛车ＰＫ１０ 香港六合彩 彩票开奖 娱乐城 百家乐 免费视频在线观看 最新高清无码专区 点击进入
        ▁给主人留下些什么吧 代开发票 需要的加微信 加ＱＱ ▁加▁微信 传奇私服 无码不卡高清免费v 日本一级特黄大片 亚洲AV 娛樂城 線上觀看免費觀看 代開發票 時時彩計劃 官網下載""",
    "address": "www.a .com com.cn .org mail@a @qq.com 13800 400123 ICP备 京ICP备 备案号 粤公网安备 備案號 http://a https://w",
    "repetition": "哈哈哈哈 哈哈哈哈哈哈 嘻嘻哈嘻嘻哈嘻嘻哈 久久久久久 滴滴滴滴 mmmmmmmm AAAAAAAA",
    "encoding": "锟斤拷 锟斤 烫烫烫 屯屯屯 ï»¿ 鈥檚 锛屾槸 銆傚 鐨勬枃绔 鏈嶅姟 彲浠ュ ÎÒÃÇ ä¸­ �� � \ue3c1 的\uf8ff \U000f0000",
}
ORDINARY = """彩票 福利彩票 中国福利彩票 体育彩票 贷款 小额贷款 信用卡 发票 增值税发票 微信 微信号 微信公众号 添加 增加微信支付 观看 免费 在线 高清 视频 在线视频 高清视频
    成人 成人教育 成人高考 色情 赌博 赌场 博彩 博彩业 澳门 北京 赛车 北京赛 娱乐 娱乐圈 娱乐场 娱乐平台 棋牌 皇冠 现金 现金网络 老虎机 威尼斯人 毛片 无码 人妻 中文字幕 官方网站
    下载 点击 注册 代理 加盟 国产精品 互联网投资 时代开始 东亚博览会 购买球员 无私服务 特色综合网 特色综合 欧美性能 全国产品 羽毛片 伏特码 一本道德经 找小姐 白小姐 计划群体 往返水路
    翻滚球 需要的加载 重要的加密 需要的联系人 中华人民共和国 新疆维吾尔自治区 第二次世界大战 不言而喻 正则表达式 哈哈 哈哈哈 研究研究 来来往往 高高兴兴 天天天天 ==== ================
    ---------------- ▁▁▁▁▁▁▁▁ …… —— ········ ！！！！ ？？？？？ ffffffff xxxxxxxx http:// https://
    ://  com .net .info .top www 1988 2024
    ¯¯¯¯ °C café naïve größe ação façade Ñandú
    版本的 存储库 浙江省 俱樂部 你不会 设备的 浣熊 锟 鐨 涓 <0xE4> <unk> <|endoftext|> <|reserved_0|> 的 ， ▁ a 學而時習之 さようなら 안녕하세요""".replace(
    "天天天天 ", ""
)


@pytest.mark.parametrize("kind", NAMED)
def test_what_is_named(kind: str) -> None:
    pieces = NAMED[kind].split()
    found = suspicious_pieces(pieces)
    assert [piece for piece in pieces if not found.get(piece, "").startswith(f"{kind}: ")] == []


def test_what_is_left_alone() -> None:
    assert suspicious_pieces(ORDINARY.split()) == {}


def test_reasons_say_what_was_found_in_the_order_of_the_pieces() -> None:
    found = suspicious_pieces(["▁北京赛车", "的", "娛樂城", "京ICP备"])
    assert list(found.items()) == [
        ("▁北京赛车", "spam: gambling (北京赛车)"),
        ("娛樂城", "spam: gambling (娛樂城)"),
        ("京ICP备", "address: filing number of a site"),
    ]


def test_every_word_is_listed_with_its_traditional_spelling_and_once() -> None:
    words, _, ordinary = _spam_words()
    assert {"gambling", "pornography", "site", "selling"} == set(words.values())
    simplify = opencc.OpenCC("t2s").convert
    traditional = opencc.OpenCC("s2t").convert
    for word in words:
        assert simplify(word) in words, word
        assert traditional(simplify(word)) in words, word
        assert unicodedata.normalize("NFKC", word).lower() == word and len(word) > 1
    assert ordinary.search("增加微信")


def test_a_shielded_word_does_not_hide_another() -> None:
    assert suspicious_pieces(["增加微信加微信"]) == {"增加微信加微信": "spam: selling (加微信)"}


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=12))
def test_utf8_read_as_gbk_is_found_wherever_the_piece_begins(text: str) -> None:
    common = "".join(c for c in text if c.encode("gb2312", "ignore") and c.encode("gb2312")[0] < 0xD8)
    broken = common.encode().decode("gbk", "ignore")
    if broken.encode("gbk") == common.encode() and len(broken) >= 3:
        for start in range(len(broken) - 2):
            assert suspicious_pieces([broken[start:]]), broken[start:]


@given(st.lists(st.text(max_size=6), max_size=20))
def test_any_strings_may_be_pieces(pieces: list[str]) -> None:
    found = suspicious_pieces(pieces, pieces)
    assert set(found) <= set(pieces)
    assert found == suspicious_pieces(pieces, pieces)
    assert all(suspicious_pieces([piece]).get(piece) in (None, reason) for piece, reason in found.items())


def test_only_common_characters_that_begin_at_once_are_mojibake() -> None:
    assert suspicious_pieces([broken := "学习".encode().decode("gbk")]) == {broken: "encoding: read in a wrong one"}
    assert suspicious_pieces(["学龘".encode().decode("gbk")]) == {}
    assert suspicious_pieces([(b"\xb0\x81\xb0\x82" + "学习".encode()).decode("gbk")]) == {}
