"""Site talk is found where no form is known of it, and articles are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from corpus.filters import measure
from corpus.filters.site_talk import load_words
from tests.corpus.texts import document

KEY = "blocklist.site_talk_ratio"
ARTICLE = document(3, 40)
STRANGER = "赤水河畔自家酒坊，纯粮坤沙，先尝后付款。觉得不好喝退回来，运费我出。只做口碑，老酒友懂的。"  # hardly a word of the list


def test_a_foot_and_a_head_go_whole_and_what_stands_between_stays() -> None:
    foot = "\n欢迎关注本站公众号！\n白驹过隙。\n如有侵权，请联系我们删除。"
    found = measure(KEY, [ARTICLE, ARTICLE + foot, "点击蓝字关注我们\n" + ARTICLE]) * [
        len(ARTICLE), len(ARTICLE + foot), len(ARTICLE) + 9]  # fmt: skip
    assert found.round().tolist() == [0, len(foot.replace("\n", "")), 8]
    middle = ARTICLE.split("。")
    middle.insert(len(middle) // 3, "\n扫码关注本公众号，免费领取资料包")
    assert 15 < measure(KEY, ["。".join(middle)])[0] * len("。".join(middle)) < 20


def test_what_is_no_kin_of_a_long_article_is_a_foot_whatever_it_says() -> None:
    share = measure(KEY, [f"{ARTICLE}\n{STRANGER}", f"{ARTICLE}\n{ARTICLE[:60]}", STRANGER])
    assert share[0] > 0.02 and share[1] == 0 and share[2] < 0.5


def test_scripts_and_batches_are_alike() -> None:
    texts = [
        ARTICLE,
        "本站聲明：轉載請註明出處，歡迎訂閱我們的頻道。",
        "",
        "。",
        "\n\n",
        f"{ARTICLE}\n{STRANGER}",
        "本站声明：转载请注明出处，欢迎订阅我们的频道。",
    ]
    alone = np.concatenate([measure(KEY, [text]) for text in texts])
    assert (measure(KEY, texts) == alone).all() and alone[1] == alone[6] == 1


def test_time_is_linear() -> None:
    assert 0 <= measure(KEY, ["关注我们。" * 200_000])[0] <= 1


def test_the_list_is_well_formed() -> None:
    words = load_words()
    assert len(words.groups) > 1000 and set(words.weights.tolist()) == {1, 2, 4} and words.groups.max() < 16


def test_good_pages_have_hardly_any(test_data: Path) -> None:
    lines = (test_data / "labelled" / "pages_dev.jsonl").read_text("utf-8").split("\n")[:-1]
    shares = measure(KEY, [row["text"] for row in map(json.loads, lines) if row["label"] == "good"])
    assert shares.mean() < 0.015 and (shares > 0.1).mean() < 0.02
