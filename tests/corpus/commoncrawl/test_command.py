"""`python -m corpus commoncrawl` from the outside: what it prints, refuses, survives, and hands on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpus.__main__ import main
from corpus.engine.run import run_stages
from tests.corpus.commoncrawl.archive import CRAWL, Archive, make_archive, write_list
from tests.corpus.commoncrawl.server import Server, serving
from tests.corpus.engine.toy import tree
from tests.corpus.sources.files import extract_stage

SMALL = ["--set", "fetch.task_bytes=20000", "--set", "http.backoff_seconds=0", "--set", "http.attempts=3"]


def words(base: str, out: Path, *more: str) -> list[str]:
    contact = ["--contact", "test@example.org"] if base.startswith("http") else []
    return ["commoncrawl", "--crawl", CRAWL, "--base", base, "--out", str(out), *contact, *SMALL, *more]


def told(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    assert main([*command, "--json", "--workers", "0"]) == 0
    return json.loads(capsys.readouterr().out)


def test_from_the_list_to_documents(
    archive: Archive, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(server.url, tmp_path / "cc", "--workers", "0", "--primary")) == 0
    said = capsys.readouterr().err
    wanted = archive.wanted(primary=True)
    assert f"{len(wanted)} of {len(wanted)} fetched" in said
    next_command = shlex.split(said.split("next:\n")[1].strip())
    assert next_command[:3] == ["python", "-m", "corpus"] and next_command[-1] == "build/my"
    [data] = (tmp_path / "cc").glob("cc_fetch-*/data")
    assert next_command[next_command.index("--input") + 1] == str(data)
    extract = extract_stage(str(data))
    counts = run_stages([extract], str(tmp_path / "build"), workers=0)["extract"].counts
    assert (counts.documents_in, counts.documents_out) == (len(wanted), len(wanted))
    for verb in ("verify", "status"):
        assert main([verb, str(tmp_path / "cc")]) == 0
    assert {request.path for request in server.requests} <= {
        "/" + path for path in [*archive.warcs, *archive.indexes, f"crawl-data/{CRAWL}/cc-index-table.paths.gz"]
    }


def test_a_dry_run_fetches_nothing_and_says_what_it_would_take(
    archive: Archive, server: Server, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = told(capsys, *words(server.url, out, "--dry-run", "--rate", "0.01"))
    wanted = archive.wanted()
    assert not server.of(".warc.gz") and not list(out.glob("cc_fetch-*"))
    assert plan["captures"] == len(wanted)
    assert plan["record_bytes"] == sum(row["warc_record_length"] for row in wanted)
    assert plan["saved_requests"] == len(wanted) - plan["requests"] > 0
    assert plan["seconds"] == pytest.approx((plan["record_bytes"] + plan["gap_bytes"]) / 1e4, abs=0.1)
    done = told(capsys, *words(server.url, out))
    assert done["fetched"] == plan["captures"] and done["files"] == plan["tasks"] and done["errors"] == {}
    assert len(server.of(".warc.gz")) == plan["requests"]


def test_whole_files(archive: Archive, server: Server, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.fault = lambda request: "404" if request.path.endswith(".wet.gz") else ""
    assert main(words(server.url, out, "--whole", "wet", "--dry-run")) == 1
    assert "a file of the list cannot be had" in capsys.readouterr().err
    server.fault = lambda request: ""
    plan = told(capsys, *words(server.url, out, "--whole", "wet", "--dry-run"))
    size = sum((archive.folder / name).stat().st_size for name in archive.wets)
    assert (plan["files"], plan["file_bytes"]) == (2, size) and not out.exists()
    done = told(capsys, *words(server.url, out, "--whole", "wet", "--files", "1:"))
    assert done["fetched"] == 1 and [path.name for path in Path(done["data"]).iterdir()] == [
        "00001-" + archive.wets[1].rsplit("/", 1)[-1]
    ]
    assert told(capsys, *words(str(archive.folder), out, "--whole", "warc"))["fetched"] == len(archive.warcs)


def test_index_files_that_are_named(
    archive: Archive, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_list = told(capsys, *words(server.url, tmp_path / "a"))
    glob = str(archive.folder / "cc-index" / "table" / "**" / "part-*.parquet")
    assert told(capsys, *words(server.url, tmp_path / "b", "--index", glob))["fetched"] == by_list["fetched"]
    urls = [server.url + name for name in archive.indexes]
    assert (
        told(capsys, *words(str(archive.folder), tmp_path / "c", "--contact", "xyz", "--index", *urls))["fetched"] == 80
    )
    first = told(capsys, *words(server.url, tmp_path / "d", "--files", "0:1"))
    assert 0 < first["fetched"] < by_list["fetched"]
    limited = told(
        capsys, *words(server.url, tmp_path / "e", "--limit", "9", "--host-suffix", "cn", "--language", "zho", "eng")
    )
    assert limited["fetched"] == 9


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--crawl", "../x"], 2, "give a crawl's name"),
        (["--base", "http://127.0.0.1:9/"], 2, "--contact: say whom"),
        (["--contact", "a\r\nb"], 2, "http.contact: 3 to 200 printable"),
        (["--language", "zh"], 2, "select.languages.0"),
        (["--sample", "0"], 2, "select.sample"),
        (["--limit", "0"], 2, "select.limit"),
        (["--set", "fetch.task_byte=1"], 2, "unknown key; did you mean task_bytes?"),
        (["--set", "http=1"], 2, "http"),
        (["--files", "3"], 2, "give FIRST:END"),
        (["--files", "9:"], 2, "begins behind their end"),
        (["--whole", "wet", "--files", "9:"], 2, "begins behind the end"),
        (["--whole", "wet", "--limit", "3"], 2, "--limit: chooses captures"),
        (["--whole", "wet", "--primary"], 2, "--primary: chooses captures"),
        (["--rate", "0"], 2, "--rate"),
        (["--workers", "-1"], 2, "--workers"),
        (["--index", "/nowhere/*.parquet"], 2, "matches no file"),
        (["--index", "http://127.0.0.1:9/part-*.parquet", "--contact", "xyz"], 2, "web servers list no files"),
        (["--crawl", "CC-MAIN-2030-01"], 1, "Is there a crawl CC-MAIN-2030-01"),
    ],
)
def test_options_that_make_no_sense(
    archive: Archive, out: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, message: str
) -> None:
    assert main(words(str(archive.folder), out, "--workers", "0", *options)) == code
    assert message in capsys.readouterr().err and not out.exists()


def test_a_list_cannot_lead_elsewhere(archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in ("http://evil.example/x.warc.wet.gz", "../../secret", "crawl-data/%2e%2e/x"):
        write_list(tmp_path / "archive", "wet", ["crawl-data/good.warc.wet.gz", path])
        with serving(tmp_path / "archive") as server:
            assert main(words(server.url, tmp_path / "out", "--whole", "wet", "--workers", "0")) == 1
            assert "is no path below the base" in capsys.readouterr().err and len(server.requests) == 2
    listed = tmp_path / f"archive/crawl-data/{CRAWL}/wet.paths.gz"
    for data, message in ((b"x\n", "is no gzip file"), (listed.read_bytes()[:-6], "ends too early")):
        listed.write_bytes(data)
        assert main(words(str(tmp_path / "archive"), tmp_path / "out", "--whole", "wet", "--workers", "0")) == 1
        assert message in capsys.readouterr().err


def test_killed_while_it_fetches_the_same_command_gives_the_same_bytes(archive: Archive, tmp_path: Path) -> None:
    reference = tmp_path / "reference"
    with serving(archive.folder) as server:
        assert main([*words(server.url, reference, "--workers", "0"), "--quiet"]) == 0
        server.url, requests = server.url, len(server.of(".warc.gz"))
        out = tmp_path / "out"
        command = [sys.executable, "-m", "corpus", *words(server.url, out, "--quiet", "--workers", "2")]
        for gate in (1, requests // 2):  # the first request for a capture, and one in the middle of what is left
            server.requests.clear()
            server.reached.clear()
            server.release.clear()
            server.fault = lambda request, gate=gate: (  # type: ignore[misc]
                "gate" if request.path.endswith(".warc.gz") and len(server.of(".warc.gz")) >= gate else ""
            )
            run = subprocess.Popen(
                command, cwd=Path.cwd(), start_new_session=True, env=os.environ | {"PYTHONPATH": "."}
            )
            assert server.reached.wait(250)
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            server.release.set()
            assert not list(out.glob("cc_fetch-*/MANIFEST.json"))
        server.fault = lambda request: ""
        assert main(command[3:]) == 0
    assert promised(out) == promised(reference)


def promised(out: Path) -> dict[str, str]:
    return {name: digest for name, digest in tree(out).items() if not name.endswith(".lock")}


def test_two_servers_of_the_same_archive_make_no_new_work(
    tmp_path: Path, server: Server, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ETags are the same, so are the index files, and captures that are there are not fetched from another base."""
    copy = make_archive(tmp_path / "copy")
    told(capsys, *words(server.url, out))
    with serving(copy.folder) as other:
        told(capsys, *words(other.url, out))
        assert not other.of(".warc.gz") and not other.of(".parquet")


@pytest.mark.slow
def test_the_same_bytes_from_a_store(archive: Archive, tmp_path: Path) -> None:
    from tests.corpus.engine.test_s3 import Store

    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    store = Store()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.names.items():
            patch.setenv(name, value)
        store.open()
        for path in archive.folder.rglob("*"):
            if path.is_file():
                key = f"cc/{path.relative_to(archive.folder)}"
                store.client.put_object(Bucket="bucket", Key=key, Body=path.read_bytes())

        def run(base: str, out: str, *more: str) -> None:
            command = [sys.executable, "-m", "corpus", *words(base, Path("x"), "--quiet", *more)]
            command[command.index("--out") + 1] = out
            subprocess.run(command, check=True, env=store.environment, timeout=250)

        run(str(archive.folder), str(tmp_path / "local"), "--workers", "0")
        run("s3://bucket/cc", str(tmp_path / "fetched"), "--workers", "2")
        run("s3://bucket/cc", "s3://bucket/out", "--workers", "2")
        run("s3://bucket/cc", "s3://bucket/out", "--whole", "wet")
        found = store.objects("out")
    store.end()

    def data(listed: dict[str, str]) -> dict[str, str]:
        return {
            name.rsplit("/", 1)[-1]: digest for name, digest in listed.items() if "/data/" in name and "wet" not in name
        }

    local = data(tree(tmp_path / "local"))
    assert data(tree(tmp_path / "fetched")) == local == data(found) and len(local) > 3
    assert sum("wet" in name for name in found) == len(archive.wets)
