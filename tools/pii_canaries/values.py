"""Values of each kind of personal data, and how people write them in a Chinese sentence.

A maker returns a context with {} for the value and perhaps {name}, and the value as written. Digits are random, check
digits are right: nobody's data.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable
from pathlib import Path

from corpus.personal_data.numbers import is_id_card, is_luhn

Chance = random.Random
FORMS = tomllib.loads((Path(__file__).parent / "forms.toml").read_text("utf-8"))
PARTS: dict[str, list[str]] = {name: words.split() for name, words in FORMS["parts"].items()}
CONTEXTS: dict[str, list[str]] = {kind: forms.split("|") for kind, forms in FORMS["contexts"].items()}


def _context(chance: Chance, kind: str) -> str:
    return chance.choice(CONTEXTS[kind])


def digits(chance: Chance, count: int, first: str = "0123456789") -> str:
    """Random digits; `first` are the possible first ones."""
    return "".join([chance.choice(first), *(chance.choice("0123456789") for _ in range(count - 1))])


def wide(text: str) -> str:
    """ASCII in full-width form."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def mobile_number(chance: Chance) -> str:
    return chance.choice(PARTS["segments"]) + digits(chance, 8)


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
    return _context(chance, "mobile"), value


def landline(chance: Chance) -> tuple[str, str]:
    area = chance.choice(PARTS["area_codes"])
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
    context = _context(chance, "landline")
    if chance.random() < 0.2:
        return chance.choice(["电话：{}", "联系电话:{}", "传真：{}", "座机{}"]), chance.choice(
            [area + local, local, f"{local[:4]}-{local[4:]}" if length == 8 else local]
        )
    return context, chance.choice(forms)


def birthday(chance: Chance) -> str:
    return f"{chance.randrange(1945, 2015)}{chance.randrange(1, 13):02d}{chance.randrange(1, 29):02d}"


def id_number(chance: Chance) -> str:
    first = chance.choice(PARTS["province_codes"]) + birthday(chance) + digits(chance, 3)
    return next(first + last for last in "0123456789X" if is_id_card(first + last))


def id_card(chance: Chance) -> tuple[str, str]:
    number = id_number(chance)
    a, b, c = number[:6], number[6:14], number[14:]
    if chance.random() < 0.08:
        old = number[:6] + f"{chance.randrange(30, 99)}" + number[10:17]
        return chance.choice(["身份证号{}", "居民身份证：{}", "身份证号码为{}", "身份证（{}）"]), old
    value = chance.choice(
        [number] * 10 + [number.lower(), wide(number), f"{a} {b} {c}", f"{a}-{b}-{c}", f"{a}\u3000{b}\u3000{c}"]
    )
    return _context(chance, "id_card"), value


def with_luhn_digit(first: str) -> str:
    return next(first + last for last in "0123456789" if is_luhn(first + last))


def bank_card(chance: Chance) -> tuple[str, str]:
    kind = chance.random()
    if kind < 0.75:
        prefix, length = chance.choice(PARTS["card_prefixes"]), chance.choice([16, 19, 19, 19])
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
    return _context(chance, "bank_card"), value


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
    host = chance.choice(PARTS["mail_hosts"])
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
    return _context(chance, "email"), value


def public_v4(chance: Chance) -> str:
    first = chance.choice(PARTS["first_octets"])
    return f"{first}.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"


def ipv4(chance: Chance) -> tuple[str, str]:
    value = public_v4(chance)
    if chance.random() < 0.08:
        value = wide(value)
    return _context(chance, "ipv4"), value


def ipv6(chance: Chance) -> tuple[str, str]:
    head = chance.choice(["240e", "2408", "2409", "2001:da8", "2400:3200", "2406:da00", "2a00:1450"])
    groups = head.split(":") + [f"{chance.randrange(65536):x}" for _ in range(8 - len(head.split(":")))]
    full = ":".join(groups)
    short = ":".join(groups[: chance.randrange(3, 5)]) + "::" + f"{chance.randrange(1, 65536):x}"
    value = chance.choice([full, full, short, full.upper(), ":".join(group.zfill(4) for group in groups)])
    return _context(chance, "ipv6"), value


def qq(chance: Chance) -> tuple[str, str]:
    number = digits(chance, chance.choice([5, 6, 7, 8, 9, 9, 10, 10]), "123456789")
    if len(number) == 10:
        number = chance.choice("123") + number[1:]
    value = chance.choice([number] * 12 + [wide(number), f"{number[:3]} {number[3:]}" if len(number) > 7 else number])
    return _context(chance, "qq"), value


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
        name = chance.choice(PARTS["wechat_words"])
    return name.upper() if chance.random() < 0.05 and any(map(str.isdigit, name)) else name


def wechat(chance: Chance) -> tuple[str, str]:
    name = wechat_name(chance)
    return _context(chance, "wechat"), name


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
    return _context(chance, "plate"), value


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
    return _context(chance, "passport"), value


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
