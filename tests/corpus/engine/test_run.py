"""Stages run once, resume exactly, keep the conservation law, and give the same bytes however they are run."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import durable
from corpus.engine.errors import DiskError, LockHeld, Stopped, UsageError, WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import current, plan_stages, read_run, run_stages
from corpus.engine.stage import ConservationError
from corpus.engine.storage import File
from tests.corpus.engine.toy import Joined, Lines, text_files, tree, undisturbed

pytestmark = pytest.mark.timeout(600)  # tests wait for processes, and those for a share of the machine


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    lines = [[f"第{index}卷第{line}行" if line % 3 else "短" for line in range(20)] for index in range(6)]
    return text_files(tmp_path / "in", map("\n".join, lines))


class Other(Joined):
    """A stage beside `joined`."""

    name = "other"


class OnBoth(Joined):
    """A stage of another package, which is built on both."""

    name = "both"
    upstream = ("lines", "joined", "other")


def run(files: tuple[File, ...], out: Path, workers: int = 0, **options: Any) -> None:
    run_stages([Lines(files, **options), Joined()], str(out), workers=workers)


@pytest.fixture
def reference(files: tuple[File, ...], tmp_path: Path) -> dict[str, str]:
    return undisturbed(files, tmp_path)


@pytest.mark.parametrize("workers", [1, 3])
def test_bytes_do_not_depend_on_the_number_of_workers(
    files: tuple[File, ...], reference: dict[str, str], tmp_path: Path, workers: int
) -> None:
    run(files, tmp_path / "out", workers)
    assert tree(tmp_path / "out") == reference


def test_counts_are_summed_and_conserved(files: tuple[File, ...], tmp_path: Path) -> None:
    run(files, tmp_path / "out")
    counts = current(str(tmp_path / "out"), "lines").counts
    assert (counts.documents_in, counts.documents_out, counts.dropped) == (120, 78, {"length": 42})


def test_a_task_that_loses_a_document_does_not_commit(files: tuple[File, ...], tmp_path: Path) -> None:
    with pytest.raises(WenhaiError, match="20 documents in, but 12 out and 7 dropped"):
        run(files, tmp_path / "out", loses=1)
    assert not list((tmp_path / "out").glob("lines-*/done/*"))
    assert not list((tmp_path / "out").glob("*/MANIFEST.json"))
    assert issubclass(ConservationError, WenhaiError)


def test_a_second_run_does_nothing_and_a_changed_recipe_reruns_only_what_follows(
    files: tuple[File, ...], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(files, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file() and path.name != ".lock"}
    run(files, out)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    run(files, out, min_chars=2)  # drops the same lines: the outputs are equal, so Joined has nothing to do
    assert len(list(out.glob("lines-*"))) == 2
    assert len(list(out.glob("joined-*"))) == 1
    run(files, out, min_chars=1)
    assert len(list(out.glob("joined-*"))) == 2
    assert current(str(out), "joined").counts.documents_out == 120


def test_rerunning_an_earlier_stage_retires_what_was_built_on_it(files: tuple[File, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run_stages([Lines(files), Joined()], out, workers=0)
    run_stages([Lines(files, min_chars=1)], out, workers=0)
    assert set(read_run(out)["stages"]) == {"lines"}
    with pytest.raises(WenhaiError, match="'joined' is not complete"):
        current(out, "joined")


def test_a_stage_that_the_recipe_no_longer_has_is_retired_with_what_was_built_on_it(
    files: tuple[File, ...], tmp_path: Path
) -> None:
    out = str(tmp_path / "out")

    def stages() -> set[str]:
        return set(read_run(out)["stages"])

    run_stages([Lines(files), Other(), Joined(), OnBoth()], out, workers=0)
    assert stages() == {"lines", "other", "joined", "both"}
    with pytest.raises(WenhaiError, match="1 of 6 tasks failed"):
        run_stages([Lines(files, min_chars=1, fault="00002:error"), Joined()], out, workers=0, retired=["other"])
    assert stages() == {"lines", "other", "joined", "both"}  # only when all is done
    folders = run_stages([Lines(files), Joined()], out, workers=0, retired=["joined", "other", "never"])
    assert stages() == set(folders) == {"lines", "joined"}
    run_stages([Lines(files), Other(), Joined(), OnBoth()], out, workers=0, retired=["other"])  # back: nothing is lost
    assert stages() == {"lines", "other", "joined", "both"}


def test_a_changed_input_reruns_its_task(files: tuple[File, ...], tmp_path: Path) -> None:
    run(files, tmp_path / "out")
    path = Path(files[3].url)
    stamp = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("行", "列"))
    os.utime(path, ns=(stamp, stamp))  # times say nothing
    run(tuple(list_inputs([str(path.parent / "*.txt")])), tmp_path / "out")
    assert "列" in Path(current(str(tmp_path / "out"), "lines").files()[3].url).read_text()


def test_an_added_input_costs_only_its_own_task(files: tuple[File, ...], tmp_path: Path) -> None:
    run(files[:4], tmp_path / "out")
    run(files, tmp_path / "alone")
    first = (tmp_path / "out").glob("lines-*/data/00003.txt")
    before = next(first).stat().st_ino
    run(files, tmp_path / "out", fault="00003:error")  # would fail if it were run again
    old_and_new = [path.stat().st_ino for path in (tmp_path / "out").glob("lines-*/data/00003.txt")]
    assert old_and_new == [before, before]
    stages = read_run(str(tmp_path / "alone"))["stages"]
    assert read_run(str(tmp_path / "out"))["stages"] == stages
    for entry in stages.values():
        assert tree(tmp_path / "out" / entry["folder"]) == tree(tmp_path / "alone" / entry["folder"])


def test_in_an_object_store_an_added_input_costs_only_its_own_task_too(
    files: tuple[File, ...], tmp_path: Path, reference: dict[str, str]
) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    run_stages([Lines(files[:4]), Joined()], "memory://added", workers=0)
    damaged = next(name for name in store.find("/added") if name.endswith("data/00002.txt"))
    store.pipe_file(damaged, store.cat_file(damaged)[:-1])  # not taken over
    with pytest.raises(WenhaiError, match=r"1 of 6 tasks failed\n  00002 "):
        run_stages([Lines(files, fault="00002:error")], "memory://added", workers=0)
    with pytest.raises(WenhaiError, match=r"stage lines: 1 of 6"):
        run_stages([Lines(files, min_chars=2, fault="00003:error")], "memory://added", workers=0)  # another recipe
    run_stages([Lines(files, fault="00003:error"), Joined()], "memory://added", workers=0)
    for stage, entry in read_run("memory://added")["stages"].items():
        names = [name for name in reference if name.startswith(f"{stage}-")]
        found = {name: hashlib.sha256(store.cat_file(f"/added/{name}")).hexdigest() for name in names}
        assert found == {name: reference[name] for name in names} and names[0].startswith(entry["folder"])


def test_a_damaged_file_that_is_removed_does_not_come_back_by_its_link(
    files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(files[:4], out)
    run(files, out)  # now 00003.txt stands in two folders, and is one file
    damaged = Path(current(str(out), "lines").files()[3].url)
    assert damaged.stat().st_nlink == 2
    damaged.write_bytes(bytes(byte ^ 1 for byte in damaged.read_bytes()))  # of the same size
    damaged.unlink()
    run(files, out)
    for entry in read_run(str(out))["stages"].values():
        expected = {name: digest for name, digest in reference.items() if name.startswith(entry["folder"])}
        assert {f"{entry['folder']}/{name}": digest for name, digest in tree(out / entry["folder"]).items()} == expected


@pytest.mark.parametrize("fault", ["kill", "error"])
def test_a_failed_task_costs_itself_and_the_next_run_finishes(
    files: tuple[File, ...], reference: dict[str, str], tmp_path: Path, fault: str
) -> None:
    out = tmp_path / "out"
    reason = {"kill": "killed by SIGKILL", "error": "ValueError: a bad shard"}[fault]
    with pytest.raises(WenhaiError, match=f"1 of 6 tasks failed\n  00002  .*{reason}"):
        run(files, out, workers=2, fault=f"00002:{fault}")
    assert len(list(out.glob("lines-*/done/*.json"))) == 5
    assert [path.name for path in out.glob("lines-*/failed/*")] == ["00002.json"]
    assert not list(out.glob("*/MANIFEST.json"))
    run(files, out, workers=2)
    assert tree(out) == reference


def test_a_full_disk_stops_the_stage_and_says_so_even_where_nothing_can_be_recorded(
    files: tuple[File, ...], reference: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise DiskError("no room for a record either")

    with monkeypatch.context() as patched:
        patched.setattr("corpus.engine.run._record_failure", full)
        patched.setattr("corpus.engine.run._add_timing", full)
        with pytest.raises(WenhaiError, match=r"1 of 6 tasks failed\n  00002  disk: somewhere: cannot be written"):
            run(files, tmp_path / "out", fault="00002:disk")
    assert [path.stem for path in sorted((tmp_path / "out").glob("lines-*/done/*"))] == ["00000", "00001"]
    run(files, tmp_path / "out")
    assert tree(tmp_path / "out") == reference


def test_what_all_tasks_need_and_is_gone_stops_the_stage(files: tuple[File, ...], tmp_path: Path) -> None:
    with pytest.raises(WenhaiError, match=r"1 of 6 tasks failed\n  00002  setup: a server: does not answer"):
        run(files, tmp_path / "out", fault="00002:setup")
    assert [path.stem for path in sorted((tmp_path / "out").glob("lines-*/done/*"))] == ["00000", "00001"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"half")])
def test_a_finished_output_that_is_gone_or_cut_is_made_again(
    files: tuple[File, ...], reference: dict[str, str], tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    out = tmp_path / "out"
    run(files, out)
    data = sorted(out.glob("lines-*/data/*"))
    stamps = [path.stat().st_mtime_ns for path in data]
    damage(data[3])
    run(files, out)
    assert tree(out) == reference
    assert [path.stat().st_mtime_ns == stamp for path, stamp in zip(data, stamps, strict=True)].count(False) == 1


def test_an_output_folder_that_cannot_be_one_is_named(files: tuple[File, ...], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file: is a file\. Choose a folder"):
        run(files, tmp_path / "file")
    with pytest.raises(DiskError, match=r"cannot be written \(Not a directory\)"):
        run(files, tmp_path / "file" / "below")
    with pytest.raises(UsageError, match="not UTF-8"):
        run(files, tmp_path / os.fsdecode(b"\xce\xc4"))  # GBK
    with pytest.raises(WenhaiError, match=r"holds no run\.json.*Give the output folder"):
        read_run(str(tmp_path))


@pytest.mark.parametrize(
    "stages", [[], {"lines": 3}, {"lines": {"folder": "../other", "upstream": {}}}, {"lines": {"folder": "lines-0"}}]
)
def test_a_foreign_run_file_is_refused(tmp_path: Path, stages: object) -> None:
    durable.write_json(tmp_path / "run.json", {"format": 1, "stages": stages})
    with pytest.raises(WenhaiError, match=r"its run\.json is not of format 1"):
        current(str(tmp_path), "lines")


def test_a_worker_killed_once_is_not_a_failure(
    files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "once").touch()
    run(files, tmp_path / "out", workers=2, fault=f"00001:kill@{tmp_path / 'once'}")
    assert tree(tmp_path / "out") == reference


def test_a_hung_task_is_stopped_at_its_limit(
    files: tuple[File, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lines, "timeout_seconds", 1.5)
    with pytest.raises(WenhaiError, match=r"00004  timeout: ran longer than 1\.5 s"):
        run(files, tmp_path / "out", workers=2, fault="00004:hang")


RUN_TOY = """
import sys
from corpus.engine.inputs import list_inputs
from corpus.engine.errors import WenhaiError
from corpus.engine.run import run_stages
from tests.corpus.engine.toy import Joined, Lines
if __name__ == "__main__":
    try:
        files = tuple(list_inputs([sys.argv[1]]))
        run_stages([Lines(files, fault=sys.argv[3]), Joined()], sys.argv[2], workers=2)
    except WenhaiError as error:
        print(error)
        sys.exit(error.exit_code)
"""


def start(tmp_path: Path, out: Path, fault: str) -> subprocess.Popen[str]:
    script = tmp_path / "run_toy.py"
    script.write_text(RUN_TOY)
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, str(script), str(tmp_path / "in" / "*.txt"), str(out), fault]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(condition: object, seconds: float = 300) -> None:
    """Until something is so; the limit is no promise of speed, it ends a test that would wait for ever."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_kill_of_the_whole_run_then_the_same_command_gives_the_same_bytes(
    files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(tmp_path, out, "00005:hang")
    wait_for(lambda: len(list(out.glob("lines-*/done/*.json"))) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=300)
    run(files, out, workers=2)
    assert tree(out) == reference


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_resume(files: tuple[File, ...], tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    process = start(tmp_path, out, "00005:hang")
    wait_for(lambda: len(list(out.glob("lines-*/done/*.json"))) >= 3)
    process.send_signal(number)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == Stopped.exit_code == 75
    assert "same command" in output
    assert not list(out.rglob("*.tmp"))


def test_a_second_run_on_the_same_folder_is_refused(files: tuple[File, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = start(tmp_path, out, "00005:hang")
    wait_for(lambda: list(out.glob("lines-*/done/*.json")))
    with pytest.raises(LockHeld, match=f"process {first.pid} on") as caught:
        run(files, out)
    assert caught.value.exit_code == 3
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=300)


def test_the_plan_stops_at_the_first_incomplete_stage(files: tuple[File, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert [(stage.name, tasks, done) for stage, _, tasks, done in plan_stages([Lines(files), Joined()], out)] == [
        ("lines", 6, 0)
    ]
    run_stages([Lines(files), Joined()], out, workers=0)
    assert [(stage.name, tasks, done) for stage, _, tasks, done in plan_stages([Lines(files), Joined()], out)] == [
        ("lines", 6, 6),
        ("joined", 1, 1),
    ]


def test_inputs_are_listed_once_and_in_order(files: tuple[File, ...], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    assert [Path(file.url).name for file in list_inputs([str(folder)])] == [f"{i}.txt" for i in range(6)]
    with pytest.raises(UsageError, match="listed twice"):
        list_inputs([str(folder / "0.txt"), str(folder / "*.txt")])
    with pytest.raises(UsageError, match="matches no file"):
        list_inputs([str(folder / "*.gz")])


@pytest.mark.parametrize("name", ["news [2024]", "新闻*", "a b"])
def test_a_folder_may_be_called_what_it_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    (folder / "deep").mkdir(parents=True)
    (folder / "[1].txt").touch()
    (folder / "deep" / "2.txt").touch()
    for pattern, found in [
        ("", ["[1].txt", "2.txt"]),
        ("*.txt", ["[1].txt"]),
        ("[1].txt", ["[1].txt"]),
        ("*/*.txt", ["2.txt"]),
        ("**/*.txt", ["[1].txt", "2.txt"]),
        ("deep/[12].txt", ["2.txt"]),
    ]:
        listed = list_inputs([str(folder / pattern)])
        assert [Path(file.url).name for file in listed] == found, pattern


def test_a_link_keeps_its_name_and_is_the_file_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text("文")
    (tmp_path / "news.jsonl").symlink_to(tmp_path / "blob")
    assert [Path(file.url).name for file in list_inputs([str(tmp_path / "news.jsonl")])] == ["news.jsonl"]
    with pytest.raises(UsageError, match="blob: listed twice"):
        list_inputs([str(tmp_path)])
    (tmp_path / os.fsdecode(b"\xce\xc4")).touch()
    with pytest.raises(UsageError, match="not UTF-8"):
        list_inputs([str(tmp_path)])


def test_copies_of_remote_files_do_not_outlive_their_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fsspec.filesystem("memory").pipe_file("/in/0.txt", "第一行之文".encode())
    files = tuple(list_inputs(["memory://in/*.txt"]))
    run_stages([Lines(files), Joined()], "memory://copies", workers=0)
    assert current("memory://copies", "joined").counts.documents_out == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
