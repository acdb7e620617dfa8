"""Site talk is found where no form is known of it, and articles are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from corpus.filters import load, measure
from corpus.filters.site_talk import CORE_FLAG, load_words
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
    assert (words.weights > 0).sum(axis=1).min() > 300 and words.groups.max() < 16
    assert set(words.weights[0].tolist()) == {0, 1, 2, 4} and set((words.weights[1] % CORE_FLAG).tolist()) == {
        0,
        1,
        2,
        3,
        4,
        5,
    }


def test_a_dead_page_is_told_by_what_it_says_and_an_article_about_such_pages_is_none() -> None:
    dead = [
        "404\n抱歉，您訪問的頁面不存在\n返回首頁",
        "安全验证\n您的访问过于频繁，请输入验证码后继续访问。\n换一张",
        "用户登录\n用户名\n密码\n忘记密码？\n立即注册",
        "此文章为付费内容，请购买后阅读全文。",
        "本網站使用cookies以提升使用體驗，繼續瀏覽即表示您同意我們使用cookies。\n同意",
    ]
    share = measure("blocklist.dead_page_ratio", [*dead, f"{dead[0]}\n{ARTICLE}", ARTICLE, "", "首页\n登录"])
    assert (share[:5] > 0.9).all() and share[5] < 0.05 and not share[6:].any()
    assert [verdict.rule for verdict in load("web_zh").apply([dead[4] * 2, dead[4] + ARTICLE])] == [
        "blocklist.dead_page_ratio", None]  # fmt: skip


def test_good_pages_have_hardly_any(test_data: Path) -> None:
    lines = (test_data / "labelled" / "pages_dev.jsonl").read_text("utf-8").split("\n")[:-1]
    shares = measure(KEY, [row["text"] for row in map(json.loads, lines) if row["label"] == "good"])
    assert shares.mean() < 0.015 and (shares > 0.1).mean() < 0.02
