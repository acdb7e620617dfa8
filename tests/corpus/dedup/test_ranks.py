"""Which copy survives: source, script, worth, date; and editions that are kept apart."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest

from corpus.dedup import DedupConfig, near_duplicates
from corpus.dedup.near.in_memory import Duplicate
from corpus.dedup.near.ranks import STATISTICS, deciding_part, measure, rank_words, read_facts
from tests.corpus.dedup.build import Deduplicate
from tests.corpus.dedup.texts import POEM, TRADITIONAL_POEM
from tests.corpus.texts import document

ARTICLE = document(7, 40)
TAILS = (
    "长按识别二维码，关注我们的公众号，每天为您推送好文。本站文章均转载自网络，版权归原作者所有，如有侵权请联系删除。",
    "风险提示：以上内容不构成任何投资建议，据此操作风险自担。现在开户享佣金优惠，名额有限，详情请咨询客服微信。",
    "以上就是小编为大家带来的全部内容，希望对您有所帮助！喜欢的朋友记得收藏本站，更多精彩资讯尽在首页。",
    "立即下載手機客戶端，註冊即送大禮包。免責聲明：本文僅代表作者個人觀點，與本站無關。",
)


def words(texts: list[str], config: DedupConfig | None = None, **columns: Any) -> list[int]:
    count = len(texts)
    table = pa.table({"text": texts, "source": [""] * count, "date": pa.nulls(count, pa.string())} | columns)
    config = config or DedupConfig()
    lengths = pa.compute.utf8_length(table["text"]).to_numpy()
    return list(map(int, rank_words(lengths, read_facts(table, None, config), config)))


def only(pair: list[str], **settings: Any) -> int | None:
    """Which of two texts stays, whichever comes first; None for both."""
    found = [near_duplicates(texts, DedupConfig(**settings)) for texts in (pair, pair[::-1])]
    stays = [[one.survivor for one in duplicates] for duplicates in found]
    assert stays[0] == [1 - survivor for survivor in stays[1]]
    return stays[0][0] if stays[0] else None


@pytest.mark.parametrize("tail", TAILS)
def test_a_tail_of_the_site_loses_and_a_cut_copy_loses(tail: str) -> None:
    assert only([ARTICLE, f"{ARTICLE}\n{tail}"]) == 0
    assert only([ARTICLE, f"{tail}\n{ARTICLE}"]) == 0
    assert only([ARTICLE, ARTICLE[: len(ARTICLE) * 9 // 10]]) == 0
    assert only([f"{ARTICLE}\n{tail}", f"{ARTICLE[:-150]}\n{tail}"]) == 0


def test_more_of_the_article_wins() -> None:
    assert only([ARTICLE, ARTICLE + document(7, 44).removeprefix(ARTICLE)]) == 1


def test_sources_then_script_then_worth_then_date_decide() -> None:
    config = DedupConfig(prefer_sources=("paper", "wiki*"))
    sources = ["paper", "wiki-zh", "blog", "blog", "blog", "blog", "blog"]
    texts = [POEM[:60], POEM[:80], TRADITIONAL_POEM, POEM[:90], POEM, POEM, POEM]
    dates = [None, None, None, "2001-01-01", None, "2011-05-05T08:00:00", "2010-05-05"]
    found = words(texts, config, source=sources, date=pa.array(dates, pa.string()))
    order = sorted(range(7), key=lambda at: -found[at])
    assert order == [0, 1, 6, 5, 4, 3, 2]
    said = [deciding_part(found[a], found[b]) for a, b in itertools.pairwise(order)]
    assert said[:2] == ["prefer_sources"] * 2 and said[5] == "prefer_script" and said[4] == "worth 96 > 90 characters"
    assert said[2:4] == ["date 2010-05-05 before 2011-05-05", "date 2011-05-05 before none"]


@pytest.mark.parametrize("date", ["", "someday", "0001-01-01", "1989-12-31", "2170-01-01", "99999-1-1", "2020-13-40"])
def test_what_is_no_date_is_none(date: str) -> None:
    assert words([POEM], date=[date]) == words([POEM])


def test_noise_does_not_decide_but_a_sentence_does() -> None:
    noise, sentence = ARTICLE + "完", ARTICLE + document(7, 60)[len(ARTICLE) :][:60]
    early, late = pa.array(["2001-01-01", "2002-01-01"]), pa.array(["2002-01-01", "2001-01-01"])
    assert words([ARTICLE, noise], date=early)[0] > words([ARTICLE, noise], date=early)[1]
    assert words([ARTICLE, sentence], date=early)[0] < words([ARTICLE, sentence], date=early)[1]
    assert words([ARTICLE, noise], date=late)[0] < words([ARTICLE, noise], date=late)[1]


def test_stored_statistics_are_read_by_row_and_cut_lines_are_forgiven() -> None:
    dirty = f"{ARTICLE}\n{TAILS[0]}"
    measured = pa.table({"row": [3, 5, 9]} | measure(pa.array([dirty] * 3)))
    columns = {"source": [""] * 2, "date": pa.nulls(2, pa.string()), "row": [5, 9]}
    dirty_share, clean_share = read_facts(pa.table({"text": [dirty, ARTICLE]} | columns), measured, DedupConfig()).share
    assert dirty_share < 0.95 and clean_share > 0.999
    scored = measured.set_column(4, "quality.score", [[0.5, 0.2, float("nan")]])
    assert scored.column_names == ["row", *STATISTICS]
    halved, whole = read_facts(pa.table({"text": [dirty, ARTICLE]} | columns), scored, DedupConfig()).share
    assert (halved, whole) == (pytest.approx(0.6 * dirty_share), clean_share)


def test_the_recipe_says_which_edition_stays() -> None:
    editions = [POEM, TRADITIONAL_POEM]
    assert only(editions) == only(editions, prefer_script="simplified") == 0
    assert only(editions, prefer_script="traditional") == 1
    assert only([POEM[:-4], TRADITIONAL_POEM]) == 0 and only([POEM[:-4], TRADITIONAL_POEM], prefer_script="any") == 1


def test_editions_that_are_kept_are_no_twins(deduplicate: Deduplicate) -> None:
    editions = [POEM, TRADITIONAL_POEM, POEM[:-3], TRADITIONAL_POEM[:-3], TRADITIONAL_POEM + "。"]
    config = DedupConfig(scripts="keep")
    assert near_duplicates(editions[:2], config) == []
    assert near_duplicates(["人之初，性本善", "人之初 性本善"], config) == [Duplicate(1, 0, 1.0, True)]
    result = deduplicate([editions[:2], editions[2:]], config)
    assert sorted(result.texts) == sorted([POEM, TRADITIONAL_POEM + "。"])
    assert deduplicate([editions[::-1]], config).texts[::-1] == [POEM, TRADITIONAL_POEM + "。"]


def test_copies_of_many_articles_in_any_order_and_split(deduplicate: Deduplicate) -> None:
    articles = [document(seed, 40) for seed in range(20, 32)]
    copies = [f"{text}\n{TAILS[number % 4]}" for number, text in enumerate(articles)]
    texts = articles + copies
    random.Random(0).shuffle(texts)
    assert sorted(deduplicate([texts[:9], texts[9:]]).texts) == sorted(articles)
