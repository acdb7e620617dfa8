"""FAULTS row 1 in deduplication: its stages killed at any durable operation, run again, give undisturbed bytes.

As in `test_f01_kill_anywhere`: a forked child runs one stage on finished ones before it and kills itself before its
N-th fsync or rename. What the dead leave is finished by a whole run. Two runs at once and a full disk are here too,
because `clusters` is the one task that all documents go through, and the one with files of its own beside its outputs.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from corpus.dedup import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    ComponentsStage,
    DedupConfig,
    MembersStage,
    SignaturesStage,
    SurvivorsStage,
    TextStage,
)
from corpus.dedup.config import ContaminationConfig, RepeatedLinesConfig
from corpus.dedup.contamination.stage import ContaminationStage
from corpus.dedup.passages.line_stages import LineCountsStage, LineKeysStage, RepeatedLinesStage
from corpus.engine.errors import DiskError, LockHeld, WenhaiError
from corpus.engine.run import run_stages
from corpus.engine.stage import Stage
from tests.corpus.dedup.build import Feed
from tests.corpus.dedup.texts import ANALECTS, POEM, TRADITIONAL_POEM, edited, random_text
from tests.corpus.engine.toy import tree
from tests.faults.conftest import Disk
from tests.faults.test_f01_kill_anywhere import in_child

pytestmark = pytest.mark.timeout(600)
CHROME = "首页 新闻 体育 财经"


def shards() -> tuple[tuple[str, ...], ...]:
    """Three shards with exact and near copies across them, a line on every page, and a text that holds a test item."""
    generator = np.random.default_rng(0)
    texts = [POEM, TRADITIONAL_POEM, ANALECTS, ANALECTS + POEM, "短"]
    for _ in range(4):
        text = random_text(generator, 200)
        texts += [text, edited(generator, text, 0.005), text + "。"]
    pages = [f"{CHROME}\n{text}" for text in texts]
    return tuple(tuple(pages[first::3]) for first in range(3))


def pipeline(items: Path) -> list[Stage]:
    config = DedupConfig()
    lines = RepeatedLinesConfig(min_documents=3, max_share=0.1, min_left=1)
    return [
        Feed(shards()),
        LineKeysStage(lines),
        LineCountsStage(lines),
        RepeatedLinesStage(lines),
        ContaminationStage(ContaminationConfig(files=(str(items),)), "repeated_lines"),
        SignaturesStage(config, "contamination"),
        BucketsStage(),
        MembersStage(config),
        CandidatesStage(config),
        ComponentsStage(),
        SurvivorsStage(),
        ClustersStage(config),
        TextStage(config, "contamination"),
    ]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Stage]:
    items = tmp_path_factory.mktemp("items") / "test.jsonl"
    items.write_text('{"id": 1, "text": "有朋自远方来不亦乐乎人不知而不愠不亦君子乎"}\n')
    return pipeline(items)


@pytest.fixture(scope="module")
def built(stages: list[Stage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    folders = run_stages(stages, str(out), workers=0)
    assert folders["repeated_lines"].counts.extra["edited.repeated_line"] == 16
    assert folders["contamination"].counts.dropped == {"contamination.share": 2}
    assert set(folders["text"].counts.dropped) == {"dedup.exact", "dedup.near"}
    return out


def run(stages: Sequence[Stage], out: Path) -> None:
    run_stages(stages, str(out), workers=0)


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written survives its death without a flush; a flush to a busy disk takes 0.1 s."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


NAMES = (
    "line_keys line_counts repeated_lines contamination signatures buckets members candidates components survivors "
    "clusters text"
).split()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_killed_before_a_durable_operation_of_a_stage(
    stages: list[Stage], built: Path, tmp_path: Path, name: str, every: int
) -> None:
    number = [stage.name for stage in stages].index(name)
    run(stages[:number], tmp_path / "before")
    reference = tree(built)
    for kill_at in itertools.count(1 + number % every, every):  # 7 and 3 have no divisor: each kind of operation
        out = tmp_path / f"out-{kill_at}"
        shutil.copytree(tmp_path / "before", out, copy_function=os.link)
        finished = in_child(partial(run, stages[: number + 1], out), kill_at)
        run(stages[: number + 1], out)
        found = tree(out)
        del found["run.json"]
        assert found == {file: reference[file] for file in found}, f"{name}: killed before operation {kill_at}"
        assert sum(file.startswith(f"{name}-") for file in found) == sum(
            file.startswith(f"{name}-") for file in reference
        )
        shutil.rmtree(out)
        if finished:
            break
    assert kill_at > 20  # it did reach into the stage


def test_killed_again_and_again_from_the_first_stage_to_the_last(
    stages: list[Stage], built: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    deaths = 0
    while not in_child(partial(run, stages, out), kill_at=20 + 4 * deaths):  # longer lives: a large task ends, too
        deaths += 1
    assert tree(out) == tree(built)
    assert deaths > 5


def test_a_second_run_in_the_middle_of_the_clusters_is_refused_and_disturbs_nothing(
    stages: list[Stage], built: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(stages[:-2], out)
    with held_in_child(partial(run, stages, out), operation=12):
        written = tree(out)
        assert any(file.startswith("clusters-") for file in written)
        with pytest.raises(LockHeld, match="in use by process"):
            run(stages, out)
        assert tree(out) == written
    assert tree(out) == tree(built)


@contextmanager
def held_in_child(action: Callable[[], None], operation: int) -> Iterator[None]:
    """Run `action` in a fork that waits before its n-th fsync or rename while the block runs, and then ends well."""
    (arrived, arrive), (go_on, let_go) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(let_go)
        counter = itertools.count(1)

        def hold(function: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                if next(counter) == operation:
                    os.write(arrive, b"x")
                    os.read(go_on, 1)
                return function(*arguments, **options)

            return call

        os.fsync, os.replace = hold(os.fsync), hold(os.replace)  # type: ignore[assignment]
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    os.close(arrive)
    try:
        assert os.read(arrived, 1) == b"x"
        yield
    finally:
        os.close(let_go)
        _, status = os.waitpid(pid, 0)
        for end in (arrived, go_on):
            os.close(end)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_disk_that_is_full_when_the_clusters_are_written(
    stages: list[Stage], built: Path, tmp_path: Path, make_disk: Callable[[str], Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = make_disk("size=16m")
    out = disk.folder / "out"
    run(stages[:-2], out)
    monkeypatch.setattr("corpus.engine.disk_budget.RESERVE_RATIO", -1.0)  # the forecast must not come before the disk
    used = shutil.disk_usage(disk.folder).used
    for pages in itertools.count(2, 2):  # first none of the stage's files fits, then one more at a time
        disk.remount(f"size={used // 1024 + 4 * pages}k")
        try:
            run(stages[:-1], out)
            break
        except DiskError as error:  # of the run's own files
            assert "No space left on device" in str(error) and "same command again" in str(error)
        except WenhaiError as error:
            assert "clusters: 1 of 1 tasks failed" in str(error) and "No space left on device" in str(error)
        assert not list(out.rglob("*.tmp"))
    assert pages > 10
    disk.remount("size=16m")
    run(stages, out)
    assert tree(out) == tree(built)
