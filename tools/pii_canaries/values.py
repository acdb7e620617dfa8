"""Values of each kind of personal data, and how people write them in a Chinese sentence.

A maker returns a context with {} for the value and perhaps {name}, and the value as written. Digits are random, check
digits are right: nobody's data.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Chance = random.Random


def digits(chance: Chance, count: int, first: str = "0123456789") -> str:
    """Random digits; `first` are the possible first ones."""
    return "".join([chance.choice(first), *(chance.choice("0123456789") for _ in range(count - 1))])


def wide(text: str) -> str:
    """ASCII in full-width form."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


SEGMENTS = (
    "130 131 132 133 134 135 136 137 138 139 145 147 149 150 151 152 153 155 156 157 158 159 166 170 171 172 173 175 176 177 178 "
    "180 181 182 183 184 185 186 187 188 189 190 191 192 193 195 196 197 198 199"
).split()


def mobile_number(chance: Chance) -> str:
    return chance.choice(SEGMENTS) + digits(chance, 8)


def mobile(chance: Chance) -> tuple[str, str]:
    number = mobile_number(chance)
    a, b, c = number[:3], number[3:7], number[7:]
    value = chance.choice(
        [number] * 12
        + [
            f"{a}-{b}-{c}",
            f"{a} {b} {c}",
            f"{a}.{b}.{c}",
            f"{a} {b}{c}",
            f"{a}{b} {c}",
            f"{number[:4]}-{number[4:7]}-{c}",
        ]
        + [wide(number), f"{a}－{b}－{c}", f"{a}—{b}—{c}", f"{a}\u3000{b}\u3000{c}", " ".join(number), f"{a}·{b}·{c}"]
        + [
            f"+86{number}",
            f"+86 {a} {b} {c}",
            f"+86-{number}",
            f"(+86){number}",
            f"（+86）{number}",
            f"0086-{number}",
            f"86-{number}",
        ]
    )
    context = chance.choice(
        "手机：{}|手机号码{}|电话:{}|联系电话：{}|TEL：{}|Tel: {}|请拨打{}咨询|联系人{name}{}|{name}（{}）|{name}:{}|热线{}（微信同号）|"
        "打我电话{}|【{}】|报名请加{}|短信发送到{}|微信/手机：{}|M:{}|有意者请致电{}{name}收|☎{}|📱{}|客服手机号{}为您服务|{name} {}|{}".split(
            "|"
        )
    )
    return context, value


def area_codes(chance: Chance) -> str:
    return chance.choice(
        "010 020 021 022 023 024 025 027 028 029 0311 0351 0411 0431 0512 0531 0551 0571 0591 0755 0769 0871 0991 0898".split()
    )


def landline(chance: Chance) -> tuple[str, str]:
    area = area_codes(chance)
    length = 8 if len(area) == 3 or chance.random() < 0.6 else 7
    local = digits(chance, length, "2345678")
    halves = f"{local[: length - 4]} {local[length - 4 :]}"
    forms = [f"{area}-{local}"] * 6 + [
        f"({area}){local}",
        f"（{area}）{local}",
        f"{area} {local}",
        f"{area}—{local}",
        f"{area}－{local}",
    ]
    forms += [
        wide(f"{area}-{local}"),
        f"{area}-{halves}",
        f"{area}-{halves.replace(' ', '-')}",
        f"+86-{area[1:]}-{local}",
        f"+86 {area[1:]} {halves}",
    ]
    forms += [f"{area}-{local}-{digits(chance, 4, '12345678')}", f"{area}-{local}转{digits(chance, 3, '12345678')}"]
    context = chance.choice(
        "电话：{}|咨询电话{}|联系方式：{}|座机{}|传真:{}|办公室电话 {}|Tel: {}|值班电话{}，{name}|{name} {}|地址电话{}|{}".split(
            "|"
        )
    )
    if chance.random() < 0.2:
        return chance.choice(["电话：{}", "联系电话:{}", "传真：{}", "座机{}"]), chance.choice(
            [area + local, local, f"{local[:4]}-{local[4:]}" if length == 8 else local]
        )
    return context, chance.choice(forms)


PROVINCE_CODES = "110101 120103 130102 140105 210102 220102 230103 310104 320106 330102 340104 350102 360102 370102 410105 420106 430102 440103 450103 500103 510104 520102 530102 610103 620102 650102".split()


def with_check_character(first: str) -> str:
    weights = [2**k % 11 for k in range(17, 0, -1)]
    rest = sum(weight * int(digit) for weight, digit in zip(weights, first, strict=True)) % 11
    return first + "10X98765432"[rest]


def birthday(chance: Chance) -> str:
    return f"{chance.randrange(1945, 2015)}{chance.randrange(1, 13):02d}{chance.randrange(1, 29):02d}"


def id_number(chance: Chance) -> str:
    return with_check_character(chance.choice(PROVINCE_CODES) + birthday(chance) + digits(chance, 3))


def id_card(chance: Chance) -> tuple[str, str]:
    number = id_number(chance)
    a, b, c = number[:6], number[6:14], number[14:]
    if chance.random() < 0.08:
        old = number[:6] + f"{chance.randrange(30, 99)}" + number[10:17]
        return chance.choice(["身份证号{}", "居民身份证：{}", "身份证号码为{}", "身份证（{}）"]), old
    value = chance.choice(
        [number] * 10 + [number.lower(), wide(number), f"{a} {b} {c}", f"{a}-{b}-{c}", f"{a}\u3000{b}\u3000{c}"]
    )
    context = chance.choice(
        "身份证：{}|身份证号码{}|身份证号为{}的{name}|证件号码：{}|ID:{}|{name}，男，{}|（{}）|公民身份号码：{}|持{}办理|编号为{}的身份证|{}|实名认证 {}".split(
            "|"
        )
    )
    return context, value


def with_luhn_digit(first: str) -> str:
    for last in "0123456789":
        total = 0
        for index, digit in enumerate(reversed(first + last)):
            double = int(digit) * 2
            total += int(digit) if index % 2 == 0 else double - 9 if double > 9 else double
        if total % 10 == 0:
            return first + last
    raise AssertionError


def bank_card(chance: Chance) -> tuple[str, str]:
    kind = chance.random()
    if kind < 0.75:
        prefix, length = (
            chance.choice("622202 621226 621700 622848 621661 622588 621483 622262 620058 623058 625900".split()),
            chance.choice([16, 19, 19, 19]),
        )
    elif kind < 0.9:
        prefix, length = chance.choice("453242 404119 518710 552599 356895 543159".split()), 16
    else:
        prefix, length = chance.choice("955880 955888 603445 690755".split()), chance.choice([16, 19])
    number = with_luhn_digit(prefix + digits(chance, length - 7))
    fours = [number[k : k + 4] for k in range(0, length, 4)]
    value = chance.choice(
        [number] * 8
        + [" ".join(fours)] * 4
        + ["-".join(fours), wide(number), f"{number[:6]} {number[6:]}", "\u3000".join(fours)]
    )
    context = chance.choice(
        "卡号：{}|银行卡号{}|工行卡{}|建设银行 {}|户名{name}卡号{}|请汇款至{}|账号:{}|打款到农行{}|收款账户：{}（{name}）|信用卡{}已逾期".split(
            "|"
        )
    )
    return context, value


def email(chance: Chance) -> tuple[str, str]:
    stem = chance.choice(
        [
            "zhangwei",
            "li.na",
            "wang_fang",
            "chen2008",
            "hr",
            "service",
            "x" + digits(chance, 4),
            "liu-yang",
            "a.b.c",
            digits(chance, 9, "123456789"),
        ]
    )
    host = chance.choice(
        "qq.com 163.com 126.com sina.com sina.cn gmail.com foxmail.com mail.tsinghua.edu.cn vip.qq.com example.com.cn outlook.com company.net.cn 139.com".split()
    )
    value = chance.choice(
        [f"{stem}@{host}"] * 12
        + [
            f"{stem}＠{host}",
            wide(f"{stem}@") + host,
            f"{stem}(at){host}",
            f"{stem}[at]{host}",
            f"{stem} @ {host}",
            f"{stem}@{host}".upper(),
        ]
    )
    context = chance.choice(
        "邮箱：{}|发邮件到{}即可|E-mail:{}|简历请投{}|投稿邮箱{}，|{name}<{}>|（{}）|mailto:{}|联系{}或来电|请发送至 {} 信箱|【{}】".split(
            "|"
        )
    )
    return context, value


def public_v4(chance: Chance) -> str:
    first = chance.choice(
        [
            1,
            14,
            27,
            36,
            39,
            42,
            58,
            59,
            60,
            61,
            101,
            106,
            110,
            111,
            113,
            114,
            115,
            116,
            117,
            118,
            119,
            120,
            121,
            122,
            123,
            124,
            125,
            139,
            180,
            182,
            183,
            202,
            210,
            211,
            218,
            219,
            220,
            221,
            222,
            223,
        ]
    )
    return f"{first}.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"


def ipv4(chance: Chance) -> tuple[str, str]:
    value = public_v4(chance)
    if chance.random() < 0.08:
        value = wide(value)
    context = chance.choice(
        "IP：{}|来自{}的用户|IP地址为{}|登录IP:{}|服务器{}已下线|攻击源{}，|{} 发表于昨天|[{}]网友说|主机{}端口8080|ping {}|网友（{}）：顶".split(
            "|"
        )
    )
    return context, value


def ipv6(chance: Chance) -> tuple[str, str]:
    head = chance.choice(["240e", "2408", "2409", "2001:da8", "2400:3200", "2406:da00", "2a00:1450"])
    groups = head.split(":") + [f"{chance.randrange(65536):x}" for _ in range(8 - len(head.split(":")))]
    full = ":".join(groups)
    short = ":".join(groups[: chance.randrange(3, 5)]) + "::" + f"{chance.randrange(1, 65536):x}"
    value = chance.choice([full, full, short, full.upper(), ":".join(group.zfill(4) for group in groups)])
    return chance.choice("IPv6地址：{}|来自{}的访客|登录IP:{}|地址是{}，|（{}）|解析到{}。".split("|")), value


def qq(chance: Chance) -> tuple[str, str]:
    number = digits(chance, chance.choice([5, 6, 7, 8, 9, 9, 10, 10]), "123456789")
    if len(number) == 10:
        number = chance.choice("123") + number[1:]
    value = chance.choice([number] * 12 + [wide(number), f"{number[:3]} {number[3:]}" if len(number) > 7 else number])
    context = chance.choice(
        "QQ：{}|qq:{}|QQ号{}|QQ号码：{}|加QQ{}|加Q：{}|加q{}|扣扣：{}|扣扣{}|扣扣号{}|企鹅号：{}|企鹅：{}|QQ群：{}|QQ群{}|加入QQ群号：{}|Ｑ群：{}|"
        "ＱＱ：{}|Qq {}|联系QQ：{}|客服QQ:{}|交流QQ群：{}|QQ交流群：{}|叩叩：{}|QQ {}|QQ: {}".split("|")
    )
    return context, value


def wechat_name(chance: Chance) -> str:
    stem = chance.choice("xiaoli wangjie zhang_wei abc mm lovely hr tj gz shop linlin dahai fangchan".split())
    name = chance.choice(
        [
            stem + digits(chance, chance.choice([3, 4, 6, 8])),
            f"{stem}_{digits(chance, 4)}",
            f"{stem}-{digits(chance, 3)}",
            f"wxid_{stem}{digits(chance, 5)}",
        ]
    )
    name = name if len(name) >= 6 else name + digits(chance, 3)  # WeChat's shortest
    if chance.random() < 0.15:
        name = chance.choice(
            "xiaolihua wangjiefang zhangweiwei meimeida lovelygirl linlinjie dahaihang fangchandaren".split()
        )
    return name.upper() if chance.random() < 0.05 and any(map(str.isdigit, name)) else name


def wechat(chance: Chance) -> tuple[str, str]:
    name = wechat_name(chance)
    context = chance.choice(
        "微信：{}|微信号：{}|微信号{}|微信:{}|加微信：{}|加微信{}|加微{}|加我微信：{}|加V：{}|加v:{}|加vx：{}|加VX：{}|VX：{}|vx:{}|wx：{}|WX：{}|V信：{}|v信:{}|薇信：{}|薇信{}|"
        "威信：{}|威信号：{}|徽信：{}|薇❤：{}|V❤：{}|微❤信：{}|微 信：{}|微*信：{}|ＶＸ：{}|联系微信：{}|微信ID：{}|微信号是{}|微信客服：{}|WeChat：{}|微信（{}）|微信: {}|vx {}".split(
            "|"
        )
    )
    return context, name


PLATE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def plate(chance: Chance) -> tuple[str, str]:
    start = chance.choice("京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼") + chance.choice(
        PLATE_LETTERS[:12]
    )
    body = list(digits(chance, 5))
    for place in chance.sample(range(5), chance.choice([0, 0, 1, 1, 2])):
        body[place] = chance.choice(PLATE_LETTERS)
    rest = "".join(body)
    if chance.random() < 0.2:
        rest = chance.choice(
            [
                f"D{digits(chance, 5)}",
                f"F{digits(chance, 5)}",
                f"D{chance.choice(PLATE_LETTERS)}{digits(chance, 4)}",
                f"{digits(chance, 5)}D",
            ]
        )
    elif chance.random() < 0.06:
        rest = digits(chance, 4) + chance.choice("挂学警")
    value = start + chance.choice(["", "", "", "·", "·", " ", "-", "•"]) + rest
    if chance.random() < 0.06:
        value = chance.choice([wide(value), value.lower()])
    context = chance.choice(
        "车牌号{}的小轿车|车牌：{}|一辆车牌为{}的货车|号牌{}，|（{}）|肇事车辆{}逃离现场|违章车辆：{}|驾驶{}小型汽车|{}|车号 {}|牌照号为{}。".split(
            "|"
        )
    )
    return context, value


def passport(chance: Chance) -> tuple[str, str]:
    value = chance.choice(
        [
            f"E{digits(chance, 8)}",
            f"E{digits(chance, 8)}",
            f"G{digits(chance, 8)}",
            f"E{chance.choice('ABCDEFGHJ')}{digits(chance, 7)}",
            f"D{digits(chance, 8)}",
            f"S{digits(chance, 8)}",
            f"P{digits(chance, 8)}",
            f"SE{digits(chance, 7)}",
            f"PE{digits(chance, 7)}",
        ]
    )
    if chance.random() < 0.1:
        value = chance.choice([wide(value), value.lower()])
    context = chance.choice(
        "护照号：{}|护照号码{}|护照{}|护照：{}|护照号码为{}|持护照（{}）入境|护照号码（Passport No.）：{}|护照编号：{}|Passport No.: {}|因私护照 {}|护照ID：{}".split(
            "|"
        )
    )
    return context, value


MAKERS: dict[str, Callable[[Chance], tuple[str, str]]] = {
    "email": email,
    "id_card": id_card,
    "bank_card": bank_card,
    "mobile": mobile,
    "landline": landline,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "wechat": wechat,
    "qq": qq,
    "passport": passport,
    "plate": plate,
}
