"""Templates that carry text of the page: what of their parameters a reader sees. Any other template is left out.

Names are those of zh.wikipedia.org and zh.wikisource.org, and of the commonest on moegirl and Komica, in lower case. A
value of KEPT lists parameters by position or name; the first one that is not empty is taken. SHOWN puts a text together
of several; none uses a parameter twice, so that templates in each other cannot multiply a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from corpus.wikitext.conversion import convert

Labels = tuple[str, ...]
Parameters = Mapping[str, str]
Shown = Callable[[Parameters, str], str]  # of the parameters, in a variant of Chinese

_FIRST: Labels = ("1",)
_LAST: Labels = ("3", "2", "1")
_LABELLED: Labels = ("3", "1")

KEPT: dict[str, Labels] = {
    # marked up or formatted text
    **dict.fromkeys(
        "nowrap nobr nobold noitalic small smaller smalldiv big bigger large larger bold b strong em i u"
        " underline nobreak strikethrough sup sub sc smallcaps code kbd mono var abbr tooltip ruby ruby-py"
        " ruby-zh-b ruby-zh-p zy rubyh center right left indent poem poemquote blockquote bquote quote"
        " quotation cquote rquote 引文 引言 引用 font-size flag flagcountry ipa ipa-zh zwp math mvar chem2"
        " nts ruby-ja 拼音 py bpmf 注音 sic plainlist dropinitial lj smallcaps2 mathrm normal vanchor overline"
        " 黑幕 heimu censored 剧透 劇透 删除线 刪除線 del 隐藏文字 chem/link".split(),
        ("1", "text", "content", "quote"),
    ),
    **dict.fromkeys(("not a typo", "drop initial", "drop cap", "visible anchor", "bookname"), _FIRST),
    **dict.fromkeys(("columns-list", "column-list"), ("2", "1")),
    **dict.fromkeys("lang langx lang2 cj fontcolor fs resize size font2 写法 寫法 sort".split(), ("2", "text")),
    **dict.fromkeys(("color", "colour"), ("3", "2", "text")),
    **dict.fromkeys(("font color", "transl", "transliteration", "font"), _LAST),
    # links with a label: to another language's wiki, to another project
    **dict.fromkeys(("le", "ilh"), ("lt", *_LABELLED)),
    **dict.fromkeys(("ill", "illm", "interlanguage link", "interlanguage link multi"), ("lt", "1")),
    **dict.fromkeys(("tsl", "translink"), ("4", "3", "2")),
    **dict.fromkeys(("link", "仮リンク"), ("label", "1")),
    "#invoke:ilh": ("4", "2"),
    "url": ("2", "1"),
    **dict.fromkeys(("ws", "wikisource", "wikt", "w", "wp", "s", "wsl"), ("2", "1")),
    # Wiktionary: links to words
    **dict.fromkeys(("l", "m", "mention"), ("3", "2")),
    **dict.fromkeys(("zh-l", "zh-m"), _FIRST),
    # Wikisource: proper names, rare characters, variants
    **dict.fromkeys("專名 专名 專名號 書名 书名 書名號 波浪線 姓名 地名 僻字 ! 另 异体 異體 yl 小字".split(), _FIRST),
}

LITERAL = {
    **dict.fromkeys(("·", "•", "dot", "middot", "bullet", "int dot"), "·"),
    **dict.fromkeys(("snd", "spaced ndash", "ndash", "–", "dash"), "–"),
    **dict.fromkeys(("mdash", "—"), "——"),
    "=": "=",
    **dict.fromkeys(("nbsp", "spaces", "gap", "pad"), " "),
    **dict.fromkeys(("wbr", "zwsp", "shy", "nowrap begin", "nowrap end", "nobr begin", "nobr end"), ""),
    "pi": "π",
    **dict.fromkeys(("br", "break", "p", "col-break"), "\n"),
    "°c": "°C",
    "°f": "°F",
}

BLOCKS = frozenset(  # what they show stands on lines of its own
    "center right left poem poemquote blockquote bquote quote quotation cquote rquote 引文 plainlist columns-list "
    "column-list".split()
)

HEADERS = frozenset(("header", "header2", "novel", "header/sandbox", "header periodical", "translation header"))

_LANGUAGE_LABEL = re.compile(r"(?:lang|link|ipa)-[a-z]{2,3}(?:-[a-z]{1,9}){0,3}")
_HELPER_LABEL = re.compile(r"internal link helper(?:/[a-z-]+)?")
_PREFIX = re.compile(r"^(?:template|模板|樣板|t)\s*:\s*")


def normal_name(name: str) -> str:
    """A template's name in lower case, without its namespace.

    >>> normal_name(" Template:Lang_en ")
    'lang en'
    """
    return _PREFIX.sub("", " ".join(name.replace("_", " ").casefold().split()), count=1)


def labels(name: str) -> Labels | None:
    """Which parameters hold the text of a template by its normal name, or None when it shows none of the page's own."""
    if name in KEPT:
        return KEPT[name]
    if _LANGUAGE_LABEL.fullmatch(name):
        return _LABELLED if name.startswith("link-") else _FIRST
    return _LABELLED if _HELPER_LABEL.fullmatch(name) else None


def _by_key(table: str) -> dict[str, str]:
    """Rows of `KEY,KEY 简体 繁體`, or `KEY 字` where both are one, as conversion rules by key."""
    rows = (row.split() for row in table.split("|"))
    return {key: f"-{{zh-hans:{row[1]};zh-hant:{row[-1]}}}-" for row in rows for key in row[0].split(",")}


UNITS = _by_key(
    "km 公里|m 米 公尺|cm 厘米 公分|mm 毫米 公釐|um,μm 微米|nm 纳米 奈米|mi 英里|ft 英尺|in 英寸 英吋|yd 码 碼|nmi 海里"
    "|ly 光年|AU 天文单位 天文單位|km2,sqkm 平方公里|m2,sqm 平方米 平方公尺|cm2 平方厘米 平方公分|mi2,sqmi 平方英里|C °C"
    "|ft2,sqft 平方英尺|ha 公顷 公頃|acre 英亩 英畝|m3 立方米 立方公尺|km3 立方公里|cm3,cc 立方厘米 立方公分|F °F"
    "|ft3,cuft 立方英尺|L,l 升 公升|mL,ml 毫升|kg 公斤|g 克 公克|mg 毫克|t 吨 公噸|LT 长吨 長噸|ST 短吨 短噸|lb 磅"
    "|oz 盎司|km/h,kph 公里每小时 公里每小時|mph 英里每小时 英里每小時|m/s 米每秒 公尺每秒|kn,knot 节 節|hp 马力 馬力"
    "|W 瓦|kW 千瓦|MW 兆瓦"
)
COUNTRIES = _by_key(  # {{CHN}}: a flag and the name; most of those that lists of an encyclopedia have
    "chn,prc 中国 中國|roc 中华民国 中華民國|twn 台湾 臺灣|hkg 香港|mac 澳门 澳門|jpn 日本|kor 韩国 韓國|prk 朝鲜 北韓|mng 蒙古国 蒙古國"
    "|vnm,vie 越南|tha 泰国 泰國|mys,mas 马来西亚 馬來西亞|sgp,sin 新加坡|idn,ina 印度尼西亚 印尼|phl,phi 菲律宾 菲律賓|mmr,mya 缅甸 緬甸"
    "|ind 印度|pak 巴基斯坦|irn,iri 伊朗|irq 伊拉克|isr 以色列|sau,ksa 沙特阿拉伯 沙烏地阿拉伯|tur 土耳其|kaz 哈萨克斯坦 哈薩克|uzb 乌兹别克斯坦 烏茲別克"
    "|rus 俄罗斯 俄羅斯|ussr,urs 苏联 蘇聯|ukr 乌克兰 烏克蘭|gbr,uk 英国 英國|eng 英格兰 英格蘭|sco 苏格兰 蘇格蘭|irl 爱尔兰 愛爾蘭|fra 法国 法國"
    "|deu,ger 德国 德國|ita 意大利 義大利|esp,spn 西班牙|prt,por 葡萄牙|nld,ned 荷兰 荷蘭|bel 比利时 比利時|che,sui 瑞士|aut 奥地利 奧地利"
    "|swe 瑞典|nor 挪威|dnk,den 丹麦 丹麥|fin 芬兰 芬蘭|pol 波兰 波蘭|cze 捷克|svk 斯洛伐克|hun 匈牙利|rou,rom 罗马尼亚 羅馬尼亞|srb 塞尔维亚 塞爾維亞"
    "|grc,gre 希腊 希臘|usa 美国 美國|can 加拿大|mex 墨西哥|bra 巴西|arg 阿根廷|chl,chi 智利|aus 澳大利亚 澳洲|nzl 新西兰 紐西蘭|zaf,rsa 南非|egy 埃及"
)
_REGIONS = frozenset("hans hant cn tw hk mo sg my".split())
_READINGS = "1 j hg kk k h hangul hanja s hans t hant p py hp rm rr".split()
_BETWEEN = {"to": "–", "-": "–", "–": "–", "and": "和", "or": "或", "by": "×", "x": "×", "±": "±", "+/-": "±"}
_ISO_DATE = re.compile(r"([0-9]{4})[-/]([0-9]{1,2})(?:[-/]([0-9]{1,2}))?")
_DATE_PART, _DEGREES = re.compile(r"[0-9]{1,4}"), re.compile(r"-?[0-9]{1,3}(?:\.[0-9]{1,9})?")


def _lifetime(parameters: Parameters, variant: str) -> str:
    """Birth and death, of `{{bd|1881年|9月25日|1936年|10月19日}}`; the brackets stand in the page."""
    lives = (parameters.get(year, "") + parameters.get(day, "") for year, day in (("1", "2"), ("3", "4")))
    return "－".join(filter(None, lives))


def _date(parameters: Parameters, variant: str) -> str:
    """`2020年1月2日`, of `{{start date|2020|01|02}}` or `{{date|2020-1-2}}`; what is no number stands as it is."""
    parts = _positional(parameters)[:3]
    iso = _ISO_DATE.fullmatch(parts[0]) if len(parts) == 1 else None
    parts = [part for part in iso.groups() if part] if iso else parts
    dated = zip(parts, "年月日", strict=False)
    return "".join(part.lstrip("0") + unit for part, unit in dated if _DATE_PART.fullmatch(part)) or "".join(parts[:1])


def _coordinates(parameters: Parameters, variant: str) -> str:
    """`39°54′N 116°23′E`; nothing for those that stand beside the title."""
    if parameters.get("display", "").startswith("t"):
        return ""
    numbers: list[str] = []
    shown: list[str] = []
    for part in _positional(parameters):
        if part in ("N", "S", "E", "W") and numbers:
            shown.append("".join(map("".join, zip(numbers, "°′″", strict=False))) + part)
            numbers = []
        elif _DEGREES.fullmatch(part):
            numbers.append(part)
    if not shown and len(numbers) == 2:
        shown = [f"{one.lstrip('-')}°{names[one[0] == '-']}" for one, names in zip(numbers, ("NS", "EW"), strict=True)]
    return " ".join(shown)


def _converted(parameters: Parameters, variant: str) -> str:
    """A measure as it stands: `{{convert|5|to|10|km|mi}}` is `5–10公里`."""
    amount, second, last, unit = (parameters.get(key, "") for key in ("1", "2", "3", "4"))
    if second in _BETWEEN:
        amount += _BETWEEN[second] + last
    else:
        unit = second
    if unit in UNITS and (parameters.get("abbr") not in ("on", "in") or unit in "CF"):
        return amount + convert(UNITS[unit], variant)
    return f"{amount} {unit}".strip()


def _fraction(parameters: Parameters, variant: str) -> str:
    """`1/2`, or `3 1/2`; one number alone is the denominator."""
    numbers = _positional(parameters)[-3:]
    numbers = ["1", *numbers] if len(numbers) == 1 else numbers
    return " ".join([*numbers[:-2], "/".join(numbers[-2:])])


def _value(parameters: Parameters, variant: str) -> str:
    """A number with its exponent and unit, of `{{val|3.14|0.02|e=8|u=m}}`."""
    power, unit = parameters.get("e", ""), parameters.get("u", parameters.get("ul", ""))
    number = "±".join(_positional(parameters)[:2])
    return number + (f"×10^{power}" if power else "") + (f" {unit}" if unit else "")


def _note(parameters: Parameters, variant: str) -> str:
    """A commentary between the lines, which is set in small characters, in brackets."""
    text = parameters.get("1", "")
    return f"（{text}）" if text else ""


def _glossed(parameters: Parameters, variant: str) -> str:
    """`{{nihongo|东京塔|東京タワー|Tōkyō tawā}}` as `东京塔（東京タワー，Tōkyō tawā）`."""
    name, gloss = parameters.get("1", ""), "，".join(filter(None, map(parameters.get, "23")))
    return f"{name}（{gloss}）" if name and gloss else name + gloss


def _readings(parameters: Parameters, variant: str) -> str:
    """The spellings of a foreign name: `{{jpn|j=小野六花|hg=おの りっか|rm=Ono Rikka}}`."""
    return "、".join(filter(None, map(parameters.get, _READINGS)))


def _regional(parameters: Parameters, variant: str) -> str:
    """The word of the variant, of `{{地区用词|cn=硅|tw=矽|start=Silicon}}`."""
    words = ";".join(f"zh-{name}:{word}" for name, word in parameters.items() if name in _REGIONS and word)
    return convert(f"-{{{words}}}-", variant) + (_note({"1": parameters.get("start", "")}, variant) if words else "")


def _positional(parameters: Parameters) -> list[str]:
    return [value for name, value in parameters.items() if name.isdecimal() and value]


def _joined(separator: str) -> Shown:
    return lambda parameters, variant: separator.join(_positional(parameters))


def _behind(text: str) -> Shown:
    """The first parameter behind a text, which may be a conversion rule."""
    return lambda parameters, variant: convert(text, variant) + parameters.get("1", "")


SHOWN: dict[str, Shown] = {
    "bd": _lifetime,
    "as of": lambda parameters, variant: "截至" + _date(parameters, variant),
    **dict.fromkeys(("date", "film date", "birth year and age", "birth-date", "death-date"), _date),
    **{f"{event} date{age}": _date for event in ("start", "end", "birth", "death") for age in ("", " and age", "2")},
    **dict.fromkeys(("coord", "坐标", "座標"), _coordinates),
    **dict.fromkeys(("convert", "cvt"), _converted),
    **dict.fromkeys(("frac", "sfrac", "fraction", "tfrac"), _fraction),
    "val": _value,
    "e": _behind("×10^"),
    "sqrt": _behind("√"),
    **dict.fromkeys(("circa", "c."), _behind("-{zh-hans:约;zh-hant:約}-")),
    **dict.fromkeys(("chem", "gaps", "linktext"), _joined("")),
    **dict.fromkeys(("hlist", "flatlist"), _joined("、")),
    **dict.fromkeys(("unbulleted list", "ubl", "ublist", "bulleted list", "unordered list"), _joined("\n")),
    **dict.fromkeys(("註", "注", "夾注", "*", "双行注", "雙行注", "sk notes"), _note),
    **dict.fromkeys(("nihongo", "日語", "日语"), _glossed),
    **dict.fromkeys(("jpn", "kor", "korean"), _readings),
    "zh": lambda parameters, variant: _readings({**parameters, "1": ""}, variant),  # which is a language's sign
    **dict.fromkeys(("地区用词", "地區用詞", "地区词", "地區詞"), _regional),
}
