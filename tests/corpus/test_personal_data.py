"""Personal data: found next to Han in the forms people write, counted before masking, look-alikes left alone."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.__main__ import main
from corpus.filters import load, measure
from corpus.filters.statistic import buffers
from corpus.personal_data import KINDS, confirm, find_personal_data, mask
from corpus.personal_data.gate import ACCOUNT, AT, DOTTED, GROUPS, LETTERED, NUMBER, PLATE, find_places
from corpus.personal_data.numbers import is_id_card, is_luhn
from corpus.personal_data.window import Surroundings
from tests.corpus.texts import document
from tests.examples import examples
from tests.linear import assert_linear


def test_identity_card_check_character() -> None:
    assert is_id_card("11010519491231002X")  # the example of GB 11643-1999
    assert is_id_card("11010519491231002x")
    assert not is_id_card("110105194912310020")
    assert not is_id_card("11010519491331002X")  # month 13
    assert not is_id_card("99010519491231002X")  # no such province


REGIONAL = st.from_regex(r"[A-Z]{1,2}[0-9]{6}\([0-9A]\)|[A-Z][A-D1289][0-9]{8}", fullmatch=True)


@given(REGIONAL)
@examples(300)
def test_a_letter_and_digits_are_an_identity_number_by_their_check_digit_alone(number: str) -> None:
    """Of the numbers that differ in the last digit alone, one is masked."""
    bracket = ")" * number.endswith(")")
    stem = number.rstrip(")")[:-1]
    others = [f"{stem}{last}{bracket}" for last in ("0123456789A" if bracket else "0123456789")]
    masked = [other for other in others if mask(f"见{other}，") != f"见{other}，"]
    assert len(masked) == 1


def test_luhn() -> None:
    assert is_luhn("4539578763621486") and not is_luhn("4539578763621487")
    assert not is_luhn("0" * 16)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("手机13800138000。", "手机<MOBILE>。"),
        ("请拨打１３８００１３８０００咨询", "请拨打<MOBILE>咨询"),
        ("电话+8613800138000转", "电话<MOBILE>转"),
        ("电话（+86）138 0013 8000转", "电话<MOBILE>转"),
        ("138-0013-8000/139.0013.8000", "<MOBILE>/<MOBILE>"),
        ("13800138000 13900138000", "<MOBILE> <MOBILE>"),
        ("身份证号11010519491231002X的人", "身份证号<ID_CARD>的人"),
        ("身份证：110105 19491231 002x", "身份证：<ID_CARD>"),
        ("居民身份证110105491231002", "居民身份证<ID_CARD>"),
        ("邮箱zhang.san@example.com.cn，谢谢", "邮箱<EMAIL>，谢谢"),
        ("a@b.cn，c＠d.cn", "<EMAIL>，<EMAIL>"),
        ("写信到wang(at)example.com吧", "写信到<EMAIL>吧"),
        ("13800138000@163.com", "<EMAIL>"),
        ("工行卡6222020012345678903的", "工行卡<BANK_CARD>的"),
        ("卡号4539 5787 6362 1486，", "卡号<BANK_CARD>，"),
        ("办公室010-62785001，", "办公室<LANDLINE>，"),
        ("（0571）8765 4321转8012", "<LANDLINE>"),
        ("电话：62785001、62785002", "电话：<LANDLINE>、<LANDLINE>"),
        ("来自123.125.114.144的网友", "来自<IPV4>的网友"),
        ("登录IP:240e:3a1:5c2f:9d10::8a2e，", "登录IP:<IPV6>，"),
        ("加薇❤：xiao_li88，", "加薇❤：<WECHAT>，"),
        ("微信号wang_2008的", "微信号<WECHAT>的"),
        ("ＶＸ：abc12345", "ＶＸ：<WECHAT>"),
        ("QQ：12345678，扣扣87654321", "QQ：<QQ>，扣扣<QQ>"),
        ("QQ群：123456789/987654321", "QQ群：<QQ>/<QQ>"),
        ("护照号码：E12345678。", "护照号码：<PASSPORT>。"),
        ("车牌京A·12345的", "车牌<PLATE>的"),
        ("新能源粤BD12345，挂车鲁Q1234挂", "新能源<PLATE>，挂车<PLATE>"),
        ("联系：x@example.com13800138000", "联系：x@example.com13800138000"),  # one word: not guessed at
        ("u\n13800138000\n13900139000", "u\n<MOBILE>\n<MOBILE>"),  # a line feed parts, after a letter or digit too
        ("共3\n010-62785001\nIP\n123.125.114.144", "共3\n<LANDLINE>\nIP\n<IPV4>"),
        ("Tel13800138000，加V13800138000，QQ13800138000", "Tel<MOBILE>，加V<MOBILE>，QQ<MOBILE>"),
        ("京A12345：13800138000，京A·12345-010-62785001", "<PLATE>：<MOBILE>，<PLATE>-<LANDLINE>"),
        ("wang@example.com/13800138000", "<EMAIL>/<MOBILE>"),
        ("138•0013•8000，139・0013・9000", "<MOBILE>，<MOBILE>"),
        ("https://a.cn/?id=7&mobile=13800138000&x=1", "https://a.cn/?id=7&mobile=<MOBILE>&x=1"),
        ("http://a.cn/#tel:+8613800138000 tel://13800138000", "http://a.cn/#tel:<MOBILE> tel://<MOBILE>"),
        ("香港+852 9123 4567，(852) 2345 6789", "香港<MOBILE>，<LANDLINE>"),
        ("電話 9123 4567，WhatsApp：6123 4567，致電2345-6789", "電話 <MOBILE>，WhatsApp：<MOBILE>，致電<LANDLINE>"),
        ("澳门（+853）6612 3456，00853-28712345", "澳门<MOBILE>，<LANDLINE>"),
        ("+886 912 345 678，+886-2-2345-6789", "<MOBILE>，<LANDLINE>"),
        ("0912-345-678，手機0912345678", "<MOBILE>，手機<MOBILE>"),
        ("（０２）2345-6789分機12，電話：03-9782345", "<LANDLINE>，電話：<LANDLINE>"),
        ("A123456(3)，ＡＢ９８７６５４（３），身份證A1234563", "<ID_CARD>，<ID_CARD>，身份證<ID_CARD>"),
        ("身分證字號A123456789，居留證AC01234567", "身分證字號<ID_CARD>，居留證<ID_CARD>"),
        ("澳門居民身份證1234567(8)", "澳門居民身份證<ID_CARD>"),
        ("回鄉證H12345678，台胞证号：12345678", "回鄉證<PASSPORT>，台胞证号：<PASSPORT>"),
        ('{"phone": "13800138000"}', '{"phone": "<MOBILE>"}'),
        ("电话=13800138000，张三(13900139000)", "电话=<MOBILE>，张三(<MOBILE>)"),
        ("13800138000,\n13900139000,\n[13700137000]", "<MOBILE>,\n<MOBILE>,\n[<MOBILE>]"),
        ("x = 13800138000;  // 手机号", "x = <MOBILE>;  // 手机号"),
    ],
)
def test_personal_data_are_masked(text: str, expected: str) -> None:
    assert mask(text) == expected
    assert mask(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "订单号2023113800138000",
        "订单编号：13800138000",
        "圆周率3.13800138000",
        "哈希a13800138000f",
        "型号Q13800138000A，CV13800138000",
        "https://example.com/?item=13800138000",
        "编号110105194912310020",
        "身份证110105194912310020",
        "卡号6222020012345678904",
        "ISBN 9787302511625",
        "ISBN 978-7-302-51162-5",
        "12800138000",
        "成交13800138000元",
        "https://example.com/u/13800138000?id=11010519491231002X",
        "价格@五元",
        "邮箱格式是 名字@域名",
        "2018-03-11 2019-04-12",
        "@media screen",
        "icon@2x.png",
        "git@github.com:example/project.git",
        "热线400-123-4567，客服95588",
        "版本91.0.44.124，内网192.168.1.1，见3.2.1.4节",
        "服务器114.114.114.114",
        "文档地址2001:db8::1，12:30:45，std::beef",
        "微信JSSDK，微信 8.0.32，微信公众号：renminribao",
        "vx: velocity; wx.request({})",
        "QQ2013版，QQ 50000000人",
        "护照有效期十年，2023年到期",
        "沪A600519，最新A12345处理器",
        "13 14 15 16 17 18",
        "9123 4567，28712345，1234567(8)，0912345678，ISBN 0596802293",
        "型號A1234563，編號A123456789，通行證20230101",
        "np.array([13800138000, 13900139000])",
        "执行np.array([13800138000])会溢出，`f(13800138000)`也会",
        'x = 13800138000;\n<i id="13800138000">\nreturn 13800138000',
        'a = [\n  13800138000,\n  13900139000,\n]\n{"n": 13800138000}',
        "```\n13800138000 13900139000\n```",
    ],
)
def test_look_alikes_stay(text: str) -> None:
    assert mask(text) == text


def test_counts_are_of_the_text_before_masking_and_do_not_depend_on_what_is_masked() -> None:
    text = "电话13800138000、13900138000，邮箱a@b.cn。" + document(1)
    for kinds in ('["mobile"]', "[]", '["email", "mobile"]'):
        table = load("web_zh", [f"filter.edit.personal_data={kinds}"]).apply([text]).table
        assert table["personal.mobile"].to_pylist() == [2.0]
        assert table["personal.total"].to_pylist() == [3.0]
    assert measure("personal.qq", ["QQ：12345678"]).tolist() == [1.0]


def test_a_kind_is_masked_kept_or_reason_to_drop() -> None:
    text = "电话13800138000，邮箱a@b.cn。" + document(1)
    (masked,) = load("web_zh", ['filter.edit.personal_data=["mobile"]']).apply([text])
    assert "<MOBILE>" in masked.text and "a@b.cn" in masked.text and masked.kept
    (dropped,) = load("web_zh", ["filter.personal.email.max=0"]).apply([text])
    assert (dropped.rule, dropped.value) == ("personal.email", 1.0)
    directory = "\n".join(f"王先生138{number:08d}" for number in range(300))
    (page,) = load("web_zh", ["filter.personal.mobile.max=200"]).apply([document(2) + directory])
    assert not page.kept and "138000" not in page.text


def test_only_masking(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = load("web_zh").personal_only()
    texts = ["短 电话13800138000\n\n\n上一篇：无", "", "\u200b不动的"]
    verdicts = judge.apply(texts)
    assert [verdict.text for verdict in verdicts] == ["短 电话<MOBILE>\n\n\n上一篇：无", "", "\u200b不动的"]
    assert verdicts.kept.all() and verdicts.table["edits"].to_pylist()[0][0]["kind"] == "personal.mobile"
    assert len(judge.apply([])) == 0
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    (tmp_path / "in.jsonl").write_text(lines, encoding="utf-8")
    with open(tmp_path / "in.jsonl") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["filter", "--recipe", "web_zh", "--pii-only"]) == 0
    out, err = capsysbinary.readouterr()
    assert [json.loads(line)["text"] for line in out.splitlines()] == [verdict.text for verdict in verdicts]
    assert b"13800138000" not in err


PIECES = (
    "13800138000 １３９ 0013 8000 + (86) - @ . : / 1 2 6222020012345678903 110105 19491231 002X 010 62785001 a@b.cn QQ "
    "微信 vx ： 号 加 薇 ❤ +852 9123 4567 電話 手機 A 123456 (3) 09 345 02 台胞证 H "
    "xiaoli88 护照 E12345678 京A 12345 240e:: :1 8.8.4.5 订单 电话 元 ， 字 \n 。 ① ＠ http://a.cn/ wx We chat 𠮷"
).split(" ")


@given(st.lists(st.sampled_from([*PIECES, " "]), max_size=14).map("".join))
@examples(300)
def test_the_gate_misses_nothing_that_the_forms_would_confirm(text: str) -> None:
    """Confirming every form at every character finds nothing that the kernel's places lead past."""
    texts = pa.array(["前文13800138000", text], pa.large_string())
    found = find_personal_data(texts, *buffers(texts)).spans.get(1, [])
    everywhere = {
        span
        for at in range(len(text))
        for kind, characters in CANDIDATES.items()
        if characters is None or text[at] in characters
        for span in confirm(Surroundings(text), at, kind)
    }
    for span in everywhere:
        assert any(one.start < span.end and span.start < one.end for one in found), (span, found)


CANDIDATES = {
    NUMBER: "0123456789０１２３４５６７８９①",
    DOTTED: "0123456789１３９",
    GROUPS: "23",
    AT: "@＠",
    PLATE: None,
    ACCOUNT: None,
    LETTERED: "0123456789０１２３４５６７８９①",
}


def test_a_document_is_judged_alone() -> None:
    texts = [
        document(seed) + tail for seed, tail in enumerate(["138001", "38000", "加微信：", "abc12345", "a@", "b.cn"])
    ]
    assert measure("personal.total", texts).tolist() == [0.0] * 6
    mixed = ["电话13800138000", "", "无", "QQ：12345678"]
    batch = pa.array(mixed, pa.large_string()).slice(1, 3)
    assert find_personal_data(batch, *buffers(batch)).counts.sum(axis=1).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "family",
    "1|13800138000|13800138000 |a|a@|@|a.|@a.|1 |1-|11010519491231002|微信|加微信：a|QQ:1|2400:|1.2.3.4|http://a/1380013800|"
    "护照E1234567|京A1234|电话6278500|(at)|Ｑ|010-|A123456(3) |手机|f([13800138000,|```\n13800138000\n".split("|"),
)
def test_time_is_linear(family: str) -> None:
    def make(copies: int) -> pa.Array:
        return pa.array([family * copies], pa.large_string())

    assert_linear(lambda texts: find_personal_data(texts, *buffers(texts)), make, 8000)


def test_places_are_few_in_prose() -> None:
    texts = pa.array([document(seed) for seed in range(200)], pa.large_string())
    assert len(find_places(*buffers(texts)).rows) < 20


CODE = (
    "pass\nif password: passwd v:0, I:5 v:12, @media (a) '@' 1.2.3.4567 300.1.1.1 0.9.12.tar 20:43 2d: 3-1:1.0 "
    "2021-08-09"
)


@pytest.mark.parametrize("text", CODE.split(" "))
def test_code_and_versions_are_no_places(text: str) -> None:
    texts = pa.array([f" {text} ", text], pa.large_string())
    assert len(find_places(*buffers(texts)).rows) == 0


def test_random_digits_are_rarely_personal() -> None:
    chance = random.Random(3)
    texts = ["编" + "".join(chance.choices("0123456789", k=chance.randrange(12, 30))) + "完" for _ in range(2000)]
    assert measure("personal.total", texts).sum() < 10  # the check digits of cards leave a tenth of a few prefixes


@pytest.mark.skipif("WENHAI_TEST_DATA" not in os.environ, reason="needs WENHAI_TEST_DATA")
def test_real_prose_holds_little() -> None:
    folder = Path(os.environ["WENHAI_TEST_DATA"]) / "text"
    with open(folder / "wikipedia_paragraphs.jsonl", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    assert len(KINDS) == 11
    assert measure("personal.total", texts).sum() <= 2
