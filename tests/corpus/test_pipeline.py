"""The corpus pipeline from files to text shards: nothing lost, same bytes however it is run, every fate explained."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from corpus.__main__ import main
from corpus.document import read_table
from corpus.engine.run import current, read_run
from tests.corpus.engine.toy import tree
from tests.corpus.texts import document

STAGES = ["extract", "filter", "signatures", "clusters", "text"]  # `candidates` counts key records, not documents
NUM_GOOD = 120


def line(seed: int, **fields: object) -> bytes:
    record = {"text": document(seed), "url": f"https://example.org/{seed}.html"} | fields
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files with good documents, exact and near duplicates, spam, and every kind of damage the readers know."""
    folder = tmp_path_factory.mktemp("inputs")
    good = [line(seed) for seed in range(NUM_GOOD)]
    (folder / "a.jsonl").write_bytes(b"".join(good[:30]))
    damaged = [
        json.dumps({"text": document(900)}, ensure_ascii=False).encode("gbk") + b"\n",  # in a UTF-8 file
        b'{"text": \n',
        b'{"text": ""}\n',
        b'{"txt": "no text"}\n',
        b'{"text": "' + random.Random(1).randbytes(3_000_000).hex().encode() + b'"}\n',  # one character would be a bomb
    ]
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(good[30:60] + damaged), mtime=0))
    twins = [
        line(3, url="https://mirror.example.org/3"),  # an exact copy
        line(7, text=document(7).replace("，", ",").replace("。", "．")),  # the same but for punctuation
        line(11, text=document(11).replace("老师", "教师", 1)),  # one word changed
        line(1000, text="短"),
        line(1001, text="加微信领取优惠，" * 200),
        line(1002, text="hello world, this is plain English text about nothing. " * 30),
    ]
    (folder / "c.jsonl.zst").write_bytes(zstandard.compress(b"".join(good[60:90] + twins)))
    whole = gzip.compress(b"".join(good[90:]), mtime=0)
    (folder / "d.jsonl.gz").write_bytes(whole[: len(whole) * 2 // 3])  # cut off
    (folder / "e.jsonl").write_bytes(b"")
    return folder


def arguments(inputs: Path, out: Path, workers: int = 0, *more: str) -> list[str]:
    shards = ["--set", "input.task_bytes=1000", "--set", "sources.max_line_bytes=1_000_000"]  # one task a file
    files = ["--input", str(inputs / "*"), "--out", str(out), "--workers", str(workers), "--quiet"]
    return ["run", "--recipe", "web_zh", *files, *shards, *more]


@pytest.fixture(scope="session")
def built(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    assert main(arguments(inputs, out)) == 0
    return out


def test_every_document_is_accounted_for(built: Path) -> None:
    flows = [current(str(built), stage).counts for stage in STAGES]
    for before, after in itertools.pairwise(flows):
        assert 0 < before.documents_out == after.documents_in
    extract, kept = flows[0], flows[-1]
    assert extract.documents_in > 100
    gone = sum(sum(counts.dropped.values()) + sum(counts.errors.values()) for counts in flows)
    assert extract.documents_in == kept.documents_out + gone


def test_damage_costs_itself_only_and_is_named(built: Path) -> None:
    errors = current(str(built), "extract").counts.errors
    assert errors == {"charset": 1, "json": 1, "empty": 1, "field": 1, "too_long": 1, "truncated": 1}
    fates = [
        fate
        for file in current(str(built), "extract").files("fates")
        for fate in read_table(Path(file.url)).to_pylist()
    ]
    assert all(":offset " in fate["place"] for fate in fates)
    assert {fate["place"].split(":")[0] for fate in fates} == {"b.jsonl.gz", "d.jsonl.gz"}


def kept_documents(out: Path) -> list[dict[str, str]]:
    files = current(str(out), "text").files()
    return [row for file in files for row in read_table(Path(file.url), ["url", "text"]).to_pylist()]


def test_good_documents_come_through_once(built: Path) -> None:
    texts = [row["text"] for row in kept_documents(built)]
    assert len(set(texts)) == len(texts)
    for seed in (0, 29, 30, 59, 60, 89):
        assert sum(text.startswith(document(seed)[:60]) for text in texts) == 1
    assert not any("微信领取" in text or "hello" in text or text == "短" for text in texts)


def test_duplicates_are_found_by_kind(built: Path) -> None:
    dropped = current(str(built), "text").counts.dropped
    assert dropped == {"dedup.exact": 2, "dedup.near": 1}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_bytes_do_not_depend_on_workers(inputs: Path, built: Path, tmp_path: Path, workers: int) -> None:
    assert main(arguments(inputs, tmp_path, workers)) == 0
    assert tree(tmp_path) == tree(built)


KILLED = """
import os, signal, sys
from corpus.__main__ import main
from corpus.engine import records

if __name__ == "__main__":  # the workers read this file, too
    real, left = records.Records.add, int(sys.argv.pop(1))

    def add(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.killpg(0, signal.SIGKILL)
        return real(*arguments, **options)

    records.Records.add = add
    sys.exit(main())
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kill_9_mid_run_then_the_same_command(inputs: Path, built: Path, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    for records in (1, 6, 6):  # the run and its workers die with so many new records: in three stages
        words = [str(records), *arguments(inputs, tmp_path / "out", 2)]
        died = subprocess.run(
            [sys.executable, str(script), *words], env=environment, start_new_session=True, timeout=500
        )
        assert died.returncode == -signal.SIGKILL
    assert len({path.parts[-3] for path in (tmp_path / "out").glob("*/done/*.json*")}) > 2
    assert main(arguments(inputs, tmp_path / "out")) == 0
    assert tree(tmp_path / "out") == tree(built)


def test_a_changed_threshold_reruns_the_filter_and_not_the_extraction(
    inputs: Path, built: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(built, tmp_path / "out"))
    before = read_run(str(out))["stages"]
    assert main(arguments(inputs, out, 0, "--set", "filter.length.num_chars.min=600")) == 0
    after = read_run(str(out))["stages"]
    assert after["extract"] == before["extract"]
    assert after["filter"] != before["filter"]
    assert current(str(out), "filter").counts.dropped["length.num_chars"] > 1


def test_explain_names_the_document_that_stays_for_a_duplicate(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twins = ["https://mirror.example.org/3", "https://example.org/3.html"]
    kept = {row["url"] for row in kept_documents(built)} & set(twins)
    assert len(kept) == 1
    assert main(["explain", str(built), (set(twins) - kept).pop()]) == 0
    output = capsys.readouterr().out
    assert "exact duplicate" in output and kept.pop() in output


def test_verify_is_silent_on_a_good_build_and_finds_a_flipped_bit(built: Path, tmp_path: Path) -> None:
    out = shutil.copytree(built, tmp_path / "out")
    assert main(["verify", str(out)]) == 0
    victim = Path(current(str(out), "text").files()[0].url)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    assert main(["verify", str(out)]) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--set", "dedup.treshold=0.7"], "dedup.treshold: unknown key; did you mean threshold?"),
        (["--recipe", "web_cn"], "built-in recipe"),
        (["--input", "nowhere/*.jsonl"], "matches no file"),
        (["--workers", "-1"], "--workers -1"),
    ],
)
def test_mistakes_exit_with_2_and_say_what_is_right(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[str], message: str
) -> None:
    assert main([*arguments(inputs, tmp_path / "out"), *changes]) == 2
    assert message in capsys.readouterr().err
