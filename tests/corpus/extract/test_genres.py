"""Pages of the kinds whose lines look like furniture: speech, glossaries, recipes, statutes, questions, contents,
tables."""

from __future__ import annotations

from typing import Any

import pytest

from corpus.extract import ExtractConfig, extract_html

FURNITURE = """<div class="top"><a href="/">首页</a> <a href="/n">新闻</a> <a href="/s">体育</a> <a href="/v">视频</a></div>
<p>当前位置：<a href="/">首页</a> &gt; <a href="/n">新闻</a> &gt; 正文</p>"""
FOOT = """<p>责任编辑：张三</p><div class="related"><h3>相关阅读</h3><ul><li><a href=1>茶馆老板的收音机</a></li>
<li><a href=2>修表的师傅和他的学徒</a></li><li><a href=3>雨停以后的车站</a></li></ul></div>
<div class="footer">版权所有 文海网 京ICP备00000000号</div>"""

INTERVIEW = [
    "记者：您怎么看待今年的就业形势？",
    "厅长：总体来看，今年就业形势保持稳定，我们会继续加大对高校毕业生的支持力度，多渠道促进就业创业。",
    "记者：企业普遍反映招工难，有什么措施？",
    "厅长：我们将加强职业技能培训，推动产教融合，同时优化公共就业服务，让劳动者和企业更好地对接起来。",
    "记者：谢谢您接受采访。",
    "厅长：谢谢大家的关注，也希望媒体多宣传劳动者的奋斗故事，营造尊重劳动的良好氛围。",
]
DIALOGUE = [
    "甲：你昨天去看那条河了吗？",
    "乙：去了，水比上个月高了不少。",
    "甲：那座桥还在吗？",
    "乙：还在，不过桥头的钟停了，没有人知道是什么时候停的。",
    "甲：我们明天一起去看看吧。",
    "乙：好，明天早上六点，在茶馆门口见面。",
]
FAQ = [
    "问：忘记密码怎么办？",
    "答：在登录页面点击忘记密码，按照提示输入注册时使用的邮箱，系统会发送一封重置邮件。",
    "问：如何修改收货地址？",
    "答：进入个人中心，选择地址管理，就可以添加、修改或者删除收货地址。",
    "问：订单可以取消吗？",
    "答：尚未发货的订单可以在订单详情中取消，款项会在三个工作日内退回。",
]
GLOSSARY = [
    "登录：输入用户名和密码后点击确定。",
    "注册：首次使用需要填写手机号。",
    "搜索：支持按标题和全文检索。",
    "打印：把当前页面输出到打印机。",
    "位置：北京市海淀区颐和园路5号",
    "关键词：人工智能；自然语言处理；大模型",
    "标签：一种用来标识商品的纸片。",
    "评论：对作品的价值加以评价。",
    "首页：书籍的第一页。",
]
RECIPE = [
    "五花肉洗净切成两厘米见方的块，冷水下锅焯去血沫，捞出沥干。",
    "锅里放少许油和冰糖，小火炒出糖色，下肉块翻炒均匀。",
    "加入生抽两勺、老抽半勺、料酒三勺，再放葱段和姜片。",
    "倒入没过肉块的热水，大火烧开以后转小火炖一个小时。",
    "最后开大火收汁，汤汁浓稠以后就可以出锅了。",
]
STATUTE = [
    "第一条 为了保护河道，保障防洪安全，根据有关法律，制定本条例。",
    "第二条 本条例适用于本行政区域内河道的管理和保护。",
    "第三条 任何单位和个人都有保护河道的义务，并有权制止和举报破坏河道的行为。",
    "第四条 违反本条例规定的，由主管部门责令改正，并处五百元以上五千元以下罚款。",
    "第五条 本条例自公布之日起施行。",
]


def article(blocks: list[str], tag: str = "p", title: str = "河边的人", **options: Any) -> list[str]:
    """The lines of a page of those blocks among furniture, without its headline."""
    body = "".join(f"<{tag}>{block}</{tag}>" for block in blocks)
    html = f"<title>{title}_文海网</title>{FURNITURE}<div class=content><h1>{title}</h1>{body}</div>{FOOT}"
    lines = extract_html(html, ExtractConfig(**options)).text.split("\n")
    return [line for line in lines if line != title]


@pytest.mark.parametrize(
    "blocks",
    [INTERVIEW, DIALOGUE, FAQ, GLOSSARY, RECIPE, STATUTE],
    ids="interview dialogue faq glossary recipe law".split(),
)
def test_lines_that_look_like_furniture_stay(blocks: list[str]) -> None:
    assert article(blocks) == blocks


def test_terms_and_their_meanings_stay() -> None:
    terms = "".join(f"<dt>{line.split('：')[0]}</dt><dd>{line.split('：')[1]}</dd>" for line in GLOSSARY)
    lines = article([terms], "dl", "名词解释")
    assert [line for line in lines if line.endswith("。")] == [
        line.split("：")[1] for line in GLOSSARY if line[-1] == "。"
    ]


def test_a_table_stays_whole() -> None:
    rows = [("年份", "产量", "备注"), ("2020", "", ""), ("2021", "30", "估"), ("2022", "", "缺"), ("2023", "41", "")]
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    lines = article([*RECIPE, f"</p><table>{cells}</table><p>"])
    assert lines[len(RECIPE) :] == ["\t".join(row).rstrip("\t") for row in rows]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("tabs", ["年份\t产量", "2020\t三十万吨"]),
        ("markdown", ["| 年份 | 产量 |", "| --- | --- |", "| 2020 | 三十万吨 |"]),
        ("drop", []),
    ],
)
def test_forms_of_tables(form: str, expected: list[str]) -> None:
    table = "</p><table><tr><td>年份<td>产量<tr><td>2020<td>三十万吨</table><p>"
    assert article([*RECIPE[:3], table, *RECIPE[3:]], tables=form)[3:-2] == expected


def test_line_numbers_of_code_go() -> None:
    numbers = "".join(f"<span class=line>{n}</span><br>" for n in range(1, 4))
    code = "x = 1<br>if x:<br>    print(x)    # 打印<br>"
    table = f"<table><tr><td class=gutter><pre>{numbers}</pre></td><td class=code><pre>{code}</pre></td></tr></table>"
    assert article([*RECIPE, f"</p>{table}<p>"])[len(RECIPE) :] == ["x = 1", "if x:", "    print(x)    # 打印"]
