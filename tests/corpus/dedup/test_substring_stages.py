"""Copied passages go, the best copy stays; neither order nor split nor further copies change what is left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import opencc
import pytest

from corpus.__main__ import main
from corpus.dedup import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    ComponentsStage,
    DedupConfig,
    MembersStage,
    SignaturesStage,
    SurvivorsStage,
)
from corpus.dedup.config import SubstringsConfig
from corpus.dedup.passages.sentences import LONG_PIECE
from corpus.dedup.passages.substring_stages import (
    GATE,
    CutTextStage,
    PassageKeysStage,
    PassageRanksStage,
    SubstringsStage,
)
from corpus.dedup.records import RECORD_DTYPE, array_rows, sections
from corpus.engine.run import run_stages
from corpus.report import ledger
from tests.corpus.dedup.build import Feed, Result
from tests.corpus.texts import document, write_records

MIN_CHARS = 100


def own(seed: int, num_sentences: int) -> str:
    """A paragraph that shares no sentence with any other."""
    chance = random.Random(seed)
    return "".join(
        "".join(chr(chance.randrange(0x4E00, 0x9000)) for _ in range(20)) + "。" for _ in range(num_sentences)
    )


PASSAGE = document(77, 6).replace("\n", "")  # some 150 characters after folding
LONG, SHORT = f"{own(1, 40)}\n{PASSAGE}\n{own(2, 40)}", f"{own(3, 15)}{PASSAGE}\n{own(4, 15)}"
CUT = f"{own(3, 15)}\n{own(4, 15)}"


def cut(
    path: Path, shards: Sequence[Sequence[str]], workers: int = 0, keep: str = "survivors", **values: Any
) -> Result:
    config = DedupConfig(keep=keep)  # type: ignore[arg-type]
    substrings = SubstringsConfig(**({"min_chars": MIN_CHARS} | values))
    stages = [
        Feed(tuple(map(tuple, shards))),
        SignaturesStage(config),
        BucketsStage(),
        MembersStage(config),
        CandidatesStage(config),
        ComponentsStage(),
        SurvivorsStage(),
        ClustersStage(config),
        PassageKeysStage(substrings),
        PassageRanksStage(),
        SubstringsStage(substrings),
        CutTextStage(config),
    ]
    return Result(run_stages(stages, str(path), workers=workers))


def test_the_longer_document_keeps_the_passage(tmp_path: Path) -> None:
    result = cut(tmp_path, [[SHORT, own(5, 9)], [LONG]])
    assert result.texts == [CUT, own(5, 9), LONG]
    edited, *others = result.table("substrings", "statistics").to_pylist()
    assert edited["edits"] == [{"kind": "substrings.passage", "line": 1, "count": len(PASSAGE) + 1}]
    assert edited[GATE] == len(CUT) and edited["row"] == 1 and not any(row["edits"] for row in others)
    counts = result.counts("substrings")
    assert counts.extra == {"edited.substrings.passage": 1, "edited_documents": 1, "removed_chars": len(PASSAGE)}
    assert (
        counts.bytes_in - counts.bytes_out == len(PASSAGE.encode())
        and result.counts("text").bytes_in == counts.bytes_out
    )
    assert result.table("text", "index")["text_bytes"].to_pylist() == [len(text.encode()) for text in result.texts]


def test_script_width_and_marks_do_not_hide_a_passage(tmp_path: Path) -> None:
    traditional = opencc.OpenCC("s2t").convert(PASSAGE)
    assert traditional != PASSAGE
    marks = PASSAGE.replace("，", ",").replace("。", "。　")
    others = [f"{own(number, 15)}\n{text}" for number, text in ((10, traditional), (11, marks))]
    result = cut(tmp_path, [[LONG], others])
    assert result.texts == [LONG, own(10, 15), own(11, 15)]


def test_short_and_broken_passages_stay(tmp_path: Path) -> None:
    assert cut(tmp_path / "short", [[LONG, SHORT]], min_chars=400).texts == [LONG, SHORT]
    changed = SHORT.replace(PASSAGE, PASSAGE.replace("，", "去，"))  # a character in every sentence
    assert cut(tmp_path / "changed", [[LONG, changed]]).texts == [LONG, changed]
    refrain = f"{PASSAGE}{own(7, 3)}{PASSAGE}{own(8, 3)}{PASSAGE}"
    assert cut(tmp_path / "refrain", [[refrain, own(9, 9)]]).texts == [refrain, own(9, 9)]


def collage(number: int, chance: random.Random) -> str:
    """A text of its own sentences and of passages that others have."""
    parts = [own(1000 + number, chance.randrange(1, 9))]
    for _ in range(chance.randrange(3)):
        first = chance.randrange(0, 20)
        parts += [
            "".join(own(900, 30).split("。")[first : first + chance.randrange(3, 10)]) + "。",
            own(chance.randrange(10**6), 3),
        ]
    return "".join(parts)


@pytest.mark.long
def test_what_is_left_depends_on_the_documents_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    texts = [collage(number, chance) for number in range(60)]
    whole = cut(tmp_path / "whole", [texts], min_chars=60)
    assert whole.counts("substrings").extra["edited_documents"] > 5
    shuffled = texts + texts[:20]
    chance.shuffle(shuffled)
    split = cut(tmp_path / "split", [shuffled[:30], [], shuffled[30:31], shuffled[31:]], workers=1, min_chars=60)
    assert sorted(split.texts) == sorted(whole.texts)
    monkeypatch.setattr("corpus.document.ROW_GROUP_ROWS", 7)
    assert sorted(cut(tmp_path / "groups", [shuffled], min_chars=60).texts) == sorted(whole.texts)
    assert all(any(sentence in text for text in split.texts) for text in texts for sentence in text.split("。"))


def test_texts_of_nothing_and_texts_without_an_end_pass(tmp_path: Path) -> None:
    endless = "".join(map(chr, random.Random(6).sample(range(0x20000, 0x2A000), 3000)))  # beyond the BMP
    shards = [
        ["", "。", "a"],
        [],
        ["……", "哈" * 1300, endless],
        ["嘻" * 1300 + own(12, 20), own(13, 20) + endless[1000:]],
    ]
    texts = cut(tmp_path, shards).texts
    assert texts[:6] == [*shards[0], *shards[2]] and len(texts) == 8
    rest = endless[1000 : 1000 + LONG_PIECE]  # of the copy stays what is before the first common break
    assert texts[6] == shards[3][0] and texts[7].startswith(own(13, 20)) and own(13, 20) + rest not in texts[7]


def test_an_excerpt_is_dropped_and_duplicates_are_found_behind_it(tmp_path: Path) -> None:
    twin = LONG.replace("。", "！")
    shards = [[PASSAGE, LONG, own(10, 9), twin, own(10, 9)], [SHORT]]
    result = cut(tmp_path / "dropped", shards)
    assert result.counts("substrings").dropped == {GATE: 1} and result.counts("text").dropped == {"dedup.exact": 2}
    assert sorted(result.texts) == sorted([LONG if LONG in result.texts else twin, own(10, 9), CUT])
    fate = result.table("substrings", "fates").to_pylist()[0]
    assert (fate["rule"], fate["value"], fate["bound"], fate["threshold"]) == (GATE, 0.0, "min", 50.0)
    index = result.table("text", "index").to_pylist()
    assert sorted(row["cluster_size"] for row in index) == [1, 2, 2] and all(row["survivor"] for row in index)
    tail = PASSAGE + own(30, 1)  # a sentence of its own is no copy that others were cut for
    assert cut(tmp_path / "tail", [[LONG, tail]]).texts == [LONG]
    behind = cut(tmp_path / "behind", [[own(10, 9), PASSAGE + "！", PASSAGE], [LONG]], keep="all_with_size")
    assert behind.texts == [own(10, 9), PASSAGE, LONG]  # the duplicate of an excerpt stands where it stood
    assert behind.table("text", "index")["cluster_size"].to_pylist() == [1, 2, 1]
    everything = cut(tmp_path / "all", shards, keep="all_with_size")
    assert everything.texts == [LONG, own(10, 9), twin, own(10, 9), CUT]
    better = SHORT + "！"  # whose copy loses nothing, since it is named as one
    assert cut(tmp_path / "copy", [[LONG, SHORT], [better]], keep="all_with_size").texts == [LONG, SHORT, CUT + "！"]
    shorter = LONG.removesuffix(own(2, 40)) + own(2, 34)  # of clearly lower rank: what it copies goes with it or stays
    assert cut(tmp_path / "near", [[LONG, shorter]], keep="all_with_size").texts == [LONG, shorter]
    assert cut(tmp_path / "kept", [[SHORT, LONG]], min_left=len(CUT)).texts == [CUT, LONG]


def test_the_last_copy_stays_however_short(tmp_path: Path) -> None:
    """The third document is left with the sentence between two passages; the fourth lost it there."""
    left, middle, right = own(20, 8), own(21, 1), own(22, 8)
    better = [own(23, 40) + left, own(24, 40) + right]
    shards = [[*better, left + middle + right], [left[-84:] + middle + right[:84]]]  # four sentences of each
    result = cut(tmp_path, shards)
    assert result.texts == [*better, middle] and result.counts("substrings").dropped == {GATE: 1}


def test_a_passage_of_many_documents_is_one_record_a_shard(tmp_path: Path) -> None:
    shards = [[f"{own(100 * shard + number, 12)}{PASSAGE}" for number in range(30)] for shard in range(3)]
    result = cut(tmp_path, shards)
    assert sum(PASSAGE in text for text in result.texts) == 1
    files = result.folders["passage_keys"].files("repeated")
    num_windows = {array_rows(file, RECORD_DTYPE).num_records for file in files}
    [ranges] = result.folders["passage_ranks"].files("best")
    assert num_windows == {len(sections([ranges], shard, shard + 1, RECORD_DTYPE)) for shard in range(3)}
    assert result.counts("passage_ranks").extra["shared"] == 3 * num_windows.pop()


def test_a_recipe_cuts_and_the_ledger_tells(tmp_path: Path) -> None:
    records = [
        {"text": text, "url": f"https://example.org/{i}"} for i, text in enumerate([document(1, 60), document(2, 30)])
    ]
    passage = document(1, 60).split("\n")[3]
    records[1]["text"] += "\n" + passage
    write_records(tmp_path / "in.jsonl", records)
    out = tmp_path / "out"
    arguments = ["run", "--recipe", "web_zh", "--input", str(tmp_path / "in.jsonl"), "--out", str(out)]
    assert main([*arguments, "--set", "dedup.substrings.min_chars=100", "--workers", "0", "--quiet"]) == 0
    [found] = ledger.find(str(out), "https://example.org/1")
    events = {(event.stage, event.what): event.values for event in ledger.history(str(out), found)}
    assert events["substrings", "edited"]["edits"][0]["count"] >= len(passage)
    assert events["substrings", "measured"][GATE]["min"] == 50.0
    assert ("text", "kept") in events
