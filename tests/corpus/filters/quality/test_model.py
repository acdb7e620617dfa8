"""The linear quality model: exact scores, strict files, honest errors, and a trainer that tells obvious classes
apart."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError, WenhaiError
from corpus.filters import load, measure
from corpus.filters.quality import model as quality
from corpus.filters.quality.model import Header, Model, load_model
from corpus.filters.statistic import buffers
from corpus.quality import training
from tests.corpus.texts import document

NAMES = ("high", "low", "advertisement")
OFFERS = (
    "加微信领取优惠 全场五折起 点击链接立即下单 名额有限先到先得 扫码进群送礼品 客服二十四小时在线 专业代办包过".split()
)


def advertisement(seed: int) -> str:
    chance = random.Random(seed)
    return "，".join(chance.choices(OFFERS, k=40)) + f"。编号{seed}"


def scrambled(seed: int) -> str:
    characters = list(document(seed))
    random.Random(seed).shuffle(characters)
    return "".join(characters)


def classes(count: int, start: int = 0) -> dict[str, list[str]]:
    numbers = range(start, start + count)
    return {
        "high": [document(number) for number in numbers],
        "low": [scrambled(10_000 + number) for number in numbers],
        "advertisement": [advertisement(number) for number in numbers],
    }


@pytest.fixture(scope="module")
def model() -> Model:
    pytest.importorskip("sklearn")
    options = training.Options(bits=14)
    made, assessment = training.train(training.gather(classes(150), options), NAMES, options)
    assert min(entry.f1 for entry in assessment.classes) > 0.9
    return made


def random_model(orders: tuple[int, ...], columns: int, bits: int = 12) -> Model:
    names = tuple("甲乙丙丁戊己庚辛壬癸子丑寅"[: columns + 1])
    most = quality.MAX_WEIGHTS[quality.lanes_of(names)]
    weights = np.random.default_rng(3).integers(-most - 1, most + 1, (1 << bits, columns)).astype(np.int16)
    weights[::3] = most  # sums as large as they get
    header = Header(
        classes=names, orders=orders, bits=bits, seed=5, unit=1e-3,
        bias=(0.5,) * columns, temperature=1.0, weights=digest(weights),
    )  # fmt: skip
    return Model(header, weights)


def digest(weights: np.ndarray) -> str:
    import hashlib

    return hashlib.sha256(weights.astype("<i2").tobytes()).hexdigest()


def naive_logits(model: Model, text: str) -> list[float]:
    """The definition, in Python integers."""
    table = quality.feature_table()
    codes: list[int] = []
    for character in text:
        code = ord(character)
        code = int(table[code]) if code < len(table) else code
        if code != 32 or (codes and codes[-1] != 32):
            codes.append(code)
    sums, ngrams = [0] * model.weights.shape[1], 0
    for order in model.header.orders:
        for end in range(order, len(codes) + 1):
            packed = 0
            for code in codes[end - order : end]:
                packed = packed << 21 | code
            h = (packed ^ model.header.seed) * int(quality.MULTIPLIER) % 2**64
            h = (h ^ h >> 32) * int(quality.MULTIPLIER) % 2**64 >> (64 - model.header.bits)
            ngrams += 1
            sums = [total + int(weight) for total, weight in zip(sums, model.weights[h], strict=True)]
    return [0.0] + [
        total * model.header.unit / max(ngrams, 1) + bias for total, bias in zip(sums, model.header.bias, strict=True)
    ]


@pytest.mark.parametrize(("orders", "columns"), [((1, 2), 3), ((1, 2), 10), ((1, 2, 3), 8), ((3,), 1), ((2, 3), 12)])
@given(text=st.text(st.sampled_from("学而 時\n\t　Ａa１２𠮷"), max_size=30))
@example(text="学而 時\n　Ａa１𠮷" * 300)  # more n-grams than a block
def test_the_kernel_equals_the_definition(orders: tuple[int, ...], columns: int, text: str) -> None:
    made = random_model(orders, columns)
    logits = made.logits(*buffers(pa.array(["前", text, "后后"], pa.large_string())))
    assert logits[1].tolist() == pytest.approx(naive_logits(made, text))


@pytest.mark.parametrize(("orders", "columns"), [((1, 2), 1), ((1, 2, 3), 3), ((3,), 10)])
@given(text=st.text(st.sampled_from("学而 時\n\t　Ａa１２𠮷\0\x1b"), max_size=30))
def test_contributions_add_up_to_the_score(orders: tuple[int, ...], columns: int, text: str) -> None:
    made = random_model(orders, columns)
    found = made.contributions(text)
    logits = naive_logits(made, text)[1:]
    total = sum(nats for _, nats in found.values())
    if columns == 1:
        assert total == pytest.approx(made.header.bias[0] - logits[0], abs=1e-9)
    others = quality.softmax(np.array([logits]))[0]
    assert total == pytest.approx(float(others @ (np.array(made.header.bias) - logits)), abs=1e-9)
    seen = "".join(character for character in found if len(character) == 1)
    assert not set(seen) & set("時\n\t　Ａ１２") and all(len(ngram) in orders for ngram in found)


def test_contributions_of_a_small_case_by_hand() -> None:
    weights = np.zeros((1 << 12, 1), np.int16)
    header = Header(
        classes=("good", "bad"), orders=(1, 2), bits=12, seed=5, unit=0.5, bias=(0.25,), temperature=2.0,
        weights=digest(weights),
    )  # fmt: skip
    place = int(quality.bucket(np.uint64(ord("学")), np.uint64(5), np.uint64(52)))
    weights[place] = 12
    made = Model(header, weights)
    found = made.contributions("學 学而")  # 学, space, 学, 而, and three pairs
    assert found["学"] == (2, pytest.approx(-12 * 0.5 * 2 / 7 / 2.0))
    assert {ngram: times for ngram, (times, _) in found.items()} == {
        "学": 2, " ": 1, "而": 1, "学 ": 1, " 学": 1, "学而": 1,
    }  # fmt: skip
    probability = made.measure(*buffers(pa.array(["学 学而"], pa.large_string())))[0, 0]
    assert np.log(probability / (1 - probability)) == pytest.approx(sum(n for _, n in found.values()) - 0.25 / 2.0)
    assert made.contributions("") == {} and made.contributions(" \n") == {}


def test_contributions_are_of_a_bounded_beginning() -> None:
    made = random_model((1, 2), 1)
    text = "学而时习之" * (quality.READ_BYTES // 15) + "不亦说乎"
    found = made.contributions(text + "乐" * 10_000)
    assert "乐" not in found and found["学"][0] == quality.READ_BYTES // 15


def test_script_width_case_digits_and_spacing_are_no_sign_of_quality() -> None:
    made = random_model((1, 2), 2)
    same = ["開發 ABC12", "开发　abc 99".replace(" ", ""), "  开发\n\tABC４５"]
    scores = made.measure(*buffers(pa.array(same, pa.large_string())))
    assert np.ptp(scores, axis=0).max() == 0


def test_training_counts_what_scoring_adds_up() -> None:
    made, options = random_model((1, 2), 1), training.Options(orders=(1, 2), bits=12, seed=5)
    texts = [document(1) * 9, "短", advertisement(2)]
    shares = training.features(texts, options)
    mean = shares @ made.weights.astype(np.float64) * made.header.unit + np.array(made.header.bias)
    logits = made.logits(*buffers(pa.array(texts, pa.large_string())))
    assert logits[:, 1:] == pytest.approx(mean, abs=1e-5)
    assert shares.sum(axis=1) == pytest.approx(np.ones((3, 1)), abs=1e-5)


def test_the_same_documents_give_the_same_bytes(model: Model) -> None:
    options = training.Options(bits=14)
    backwards = {name: texts[::-1] for name, texts in classes(150).items()}
    again, _ = training.train(training.gather(backwards, options), NAMES, options)
    assert again.to_bytes() == model.to_bytes()


def test_a_recipe_with_a_model(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "quality.model"
    model.save(path)
    assert load_model(str(path)).digest == model.digest
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        f'[filter.quality]\nmodel = "{path}"\nscore = {{ min = 0.5 }}\nadvertisement = {{ max = 0.5 }}\n'
        "[filter.edit]\nboilerplate_lines = false\npersonal_data = []\n"
    )
    judge = load(recipe)
    verdicts = list(judge.apply([document(9_001), scrambled(9_002), advertisement(9_003)]))
    assert [verdict.rule for verdict in verdicts] == [None, "quality.score", "quality.score"]
    assert judge.config.meaning()["quality"] == model.digest  # another model is another stage


def test_without_a_model_nothing_is_measured_and_a_rule_says_how_to_get_one(tmp_path: Path) -> None:
    assert np.isnan(measure("quality.score", ["学而时习之", ""])).all()
    off = ["filter.quality.model=off", "filter.quality.score=off"]
    for name in ("score", "advertisement"):
        with pytest.raises(UsageError, match=rf"filter\.quality\.{name}.*model = "):
            load("web_zh", [*off, f"filter.quality.{name}={{ min = 0.5 }}"])
    with pytest.raises(UsageError, match=r"length\.num_chars.*quality\.kind needs a model"):
        load("web_zh", [*off, "filter.length.num_chars=[{ min = 9, when = { kind = 'spun' } }, { min = 5 }]"])


def test_a_model_without_the_class_refuses_its_rule(tmp_path: Path) -> None:
    path = tmp_path / "m"
    random_model((1,), 1).save(path)
    with pytest.raises(UsageError, match="classes are 甲, 乙"):
        load("web_zh", [f"filter.quality.model={path}", "filter.quality.advertisement.max=0.5"])


def _header(data: bytes, **changes: object) -> bytes:
    magic, header, weights = data.split(b"\n", 2)
    return b"\n".join((magic, json.dumps(json.loads(header) | changes).encode(), weights))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:10],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:-2] + bytes([data[-2] ^ 1, data[-1]]),
        lambda data: b"\x80\x04K\x01.",
        lambda data: data.replace(b"quality 1", b"quality 2", 1),
        lambda data: data[:17] + b"[" * 60_000 + b"\n",
        lambda data: _header(data, bits=40),
        lambda data: _header(data, bits=13),  # more buckets than the weights, whose digest is right
        lambda data: _header(data, classes=["one"]),
        lambda data: _header(data, unit=-1.0),
        lambda data: _header(data, unit=1e308),  # logits beyond what a float holds would be NaN: not measured, so kept
        lambda data: _header(data, bias=[1e308]),
        lambda data: _header(data, temperature=1e-320),
        lambda data: _header(data, more=1),
    ],
    ids=list("abcdefghijklmnop"),
)
def test_a_damaged_file_is_refused(damage: object, tmp_path: Path) -> None:
    path = tmp_path / "quality.model"
    path.write_bytes(damage(random_model((1, 2), 1).to_bytes()))  # type: ignore[operator]
    with pytest.raises(UsageError, match=r"filter\.quality\.model.*quality\.model"):
        load_model(str(path))


def test_weights_beyond_a_lane_are_refused(tmp_path: Path) -> None:
    made = random_model((1,), 10)
    made.weights[7, 3] = 2048  # of 13 classes at most three share a word of 64 bits
    header = made.header.model_copy(update={"weights": digest(made.weights)})
    made.header = header
    made.save(tmp_path / "m")
    with pytest.raises(UsageError, match="weights beyond 2047"):
        load_model(str(tmp_path / "m"))


GAMBLING = (
    "注册即送彩金88元，真人百家乐、时时彩、北京赛车，首存送100%，流水一倍即可提款，代理月返佣高达60%，客服24小时在线。"
)
GOOD = (
    "下雨天路滑，我把车停在桥头，走回去的。母亲在灶间烧水，听见门响，问是不是又没带伞。我说带了，她不信，摸摸我的肩膀。"
    "灶膛里的火光映在墙上，她的影子比从前矮了许多。父亲去世以后，她还是每天把两双筷子摆在桌上，吃完了再收回去一双。"
)
DEAD = "404 抱歉，您访问的页面不存在或已被删除。请检查网址是否正确，或返回首页。登录 | 注册"


def test_the_shipped_model_knows_the_plain_cases() -> None:
    judged = load("web_zh", ["filter.length.num_chars=off", "filter.length.num_han=off"]).apply([GAMBLING, GOOD, DEAD])
    kinds, scores = (judged.table[f"quality.{name}"].to_pylist() for name in ("kind", "score"))
    assert kinds == ["adult_gambling", "good", "error_login"]
    assert scores[1] > 0.5 > 0.05 > max(scores[0], scores[2])
    assert load_model("kinds").classes == quality.KINDS and load_model("kinds").header.trained["counts"]["good"] > 1000


def test_evasions_that_folding_knows_change_no_score() -> None:
    opencc = pytest.importorskip("opencc")
    wide = "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in GAMBLING)
    texts = [GAMBLING, wide, opencc.OpenCC("s2t").convert(GAMBLING), GAMBLING.replace("88", "77"), GAMBLING.upper()]
    model = load_model("kinds")
    assert len(set(model.measure(*buffers(pa.array(texts, pa.large_string())))[:, 0].tolist())) == 1


def test_a_model_of_other_classes_has_no_kind(tmp_path: Path) -> None:
    random_model((1,), 1).save(tmp_path / "m")
    recipe = load("web_zh", [f"filter.quality.model={tmp_path / 'm'}"])
    table = recipe.apply([GOOD]).table
    assert table["quality.kind"].to_pylist() == [None] and table["quality.score"][0].as_py() is not None


def test_a_kind_stands_in_conditions_and_the_model_can_be_taken_out() -> None:
    strict = "filter.quality.score=[{ min = 1.0, when = { kind = 'good' } }, { min = 0.0 }]"
    assert load("web_zh", [strict]).apply([GOOD]).table["rule"].to_pylist() == ["quality.score"]
    off = load("web_zh", ["filter.quality.model=off", "filter.quality.score=off"]).apply([GOOD]).table
    assert off["quality.score"].to_pylist() == off["quality.kind"].to_pylist() == [None]


def test_a_shipped_model_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sha256 = quality.BUILT_IN["kinds"]
    changed = tmp_path / "kinds.model"
    changed.write_bytes(path.read_bytes()[:-1] + b"x")
    monkeypatch.setitem(quality.BUILT_IN, "kinds", (changed, sha256))
    load_model.cache_clear()
    with pytest.raises(WenhaiError, match=r"kinds\.model"):
        load_model("kinds")
    load_model.cache_clear()


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_model(str(tmp_path / "none"))
