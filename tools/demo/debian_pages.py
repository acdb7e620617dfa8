"""The demo's default input: the Chinese HTML documentation that Debian packages, as WARC files.

Six packages hold some 5,500 Chinese pages, Simplified and Traditional, many of them short: real pages with navigation
and repetition, under free licences, from a source any Debian or Ubuntu machine already trusts. Nothing is installed and
nothing of the system changes: `apt-get download` and `dpkg -x` into a folder of our own, one package at a time, so that
the peak on disk is one unpacked package (about 130 MB), not all.

`apt-get` is asked with the system's package lists first. Where those are empty or older than the archive, lists are
fetched into a folder of our own and it is asked again.

The WARC files have the same bytes every time: one gzip member a record, ids from contents, dates given. The records are
the crawler's, so that the demo's pages travel the way crawled pages do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from corpus.crawl.archive import records
from corpus.engine import durable
from corpus.engine.errors import WenhaiError

PACKAGES = (
    "debian-handbook",
    "debian-reference-zh-cn",
    "debian-reference-zh-tw",
    "installation-guide-amd64",
    "libreoffice-help-zh-cn",
    "libreoffice-help-zh-tw",
)
NUM_FILES = 8
MAX_PAGE_BYTES = 4 << 20
UPDATE_TIMEOUT_SECONDS = 300
DOWNLOAD_TIMEOUT_SECONDS = 600
CHINESE_PAGE = re.compile(r"(?:^|/)zh[-_](?:cn|tw)/(?:.*/)?[^/]+\.html?$|\.zh[-_](?:cn|tw)\.html?$", re.IGNORECASE)
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "wenhai.demo.invalid")
NOTICE = """\
The WARC files beside this notice hold the Chinese pages of these Debian packages, unchanged. Each package's licence is
in its copyright file beside. The address of a page is made up from its package and path (the top-level domain
`invalid` belongs to nobody); its date is the file's.

"""


@dataclass(frozen=True)
class Page:
    """One fetched page: where it is from, when it was last changed (seconds since 1970), and its bytes."""

    url: str
    changed: int
    html: bytes


def fetch(out: Path, work: Path, say: Callable[[str], None]) -> int:
    """Write `demo-0000.warc.gz` ... and `NOTICE.txt` into `out`, using `work` for scratch; returns the number of pages.

    Raises:
        WenhaiError: no package at all could be fetched; the message holds apt's own last line.
    """
    apt = Apt(work)
    pages: list[Page] = []
    notice: list[str] = []
    failures: list[str] = []
    for package in PACKAGES:
        try:
            archive = apt.download(package)
        except WenhaiError as error:
            failures.append(str(error))
            say(f"{package}: left out ({error})")
            if not apt.reachable:
                break
            continue
        root = work / "unpacked"
        run(["dpkg", "-x", str(archive), str(root)])
        version = run(["dpkg", "-f", str(archive), "Version"]).strip()
        found = list(chinese_pages(root, package))
        copyright_file = (root / "usr/share/doc" / package / "copyright").resolve()
        if copyright_file.is_relative_to(root.resolve()) and copyright_file.is_file():
            durable.write_bytes(out / f"copyright-{package}.txt", copyright_file.read_bytes())
        shutil.rmtree(root)
        archive.unlink()
        say(f"{package} {version}: {len(found):,} Chinese pages")
        notice.append(f"{package} {version}: {len(found):,} pages, see copyright-{package}.txt\n")
        pages += found
    if not pages:
        raise WenhaiError("Debian's packages cannot be had: " + (failures or ["they hold no Chinese page"])[0])

    about = {
        "software": "wenhai tools.debian_pages",
        "format": "WARC File Format 1.1",
        "description": "see NOTICE.txt",
    }
    for number in range(NUM_FILES):  # dealt round, so that every file has some of everything
        write_warc(out / f"demo-{number:04d}.warc.gz", pages[number::NUM_FILES], about)
    durable.write_bytes(out / "NOTICE.txt", (NOTICE + "".join(notice)).encode())
    return len(pages)


def chinese_pages(root: Path, package: str) -> Iterator[Page]:
    """The Chinese pages below an unpacked package, in order of their paths.

    A symbolic link is followed only inside the package, and a file counts once however many names it has.
    """
    seen: set[Path] = set()
    for path in sorted(root.rglob("*.htm*"), key=lambda path: path.as_posix()):
        name = path.relative_to(root).as_posix()
        target = path.resolve()
        if not CHINESE_PAGE.search(name) or not target.is_relative_to(root.resolve()) or target in seen:
            continue
        if not target.is_file() or target.stat().st_size > MAX_PAGE_BYTES:
            continue
        seen.add(target)
        short = name.removeprefix("usr/share/").removeprefix("doc/").removeprefix(f"{package}/")
        yield Page(f"https://{package}.demo.invalid/{quote(short)}", int(target.stat().st_mtime), target.read_bytes())


def write_warc(path: Path, pages: Iterable[Page], about: dict[str, str]) -> None:
    """Commit `pages` as response records behind one `warcinfo` record that carries the fields of `about`."""
    with durable.commit(path) as temporary, open(temporary, "xb") as file:
        file.writelines(_records(path.name, pages, about))


def _records(name: str, pages: Iterable[Page], about: dict[str, str]) -> Iterator[bytes]:
    yield _record("warcinfo", 0, {"WARC-Filename": name}, records.FIELDS, records.lines(about.items()))
    for page in pages:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page.html)}\r\n\r\n".encode()
        fields = {"WARC-Target-URI": page.url, "WARC-Payload-Digest": records.payload_digest(page.html)}
        yield _record("response", page.changed, fields, records.RESPONSE, head + page.html)


def _record(kind: str, changed: int, fields: dict[str, str], content_type: str, block: bytes) -> bytes:
    date = datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    key = uuid.uuid5(NAMESPACE, "\n".join([kind, *fields.values(), records.payload_digest(block)]))
    return records.pack(kind, key.urn, [("WARC-Date", date), *fields.items()], content_type, block)


class Apt:
    """`apt-get download`, with package lists of our own once the system's turn out not to serve."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "apt"
        (self._folder / "archives").mkdir(parents=True)
        self._options: list[str] = []
        self.reachable = True

    def download(self, package: str) -> Path:
        """The `.deb` of `package`; raises WenhaiError with apt's last word where there is none."""
        try:
            return self._download(package)
        except WenhaiError:
            if self._options:
                raise
        self._update()
        return self._download(package)

    def _download(self, package: str) -> Path:
        folder = self._folder / "archives"
        run(["apt-get", *self._options, "-q", "download", package], cwd=folder)
        found = sorted(folder.glob(f"{package}_*.deb"))
        if not found:
            raise WenhaiError(f"apt-get downloaded no {package}")
        return found[0]

    def _update(self) -> None:
        folder = self._folder.resolve()
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._options = ["-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
        try:
            run(["apt-get", *self._options, "-q", "update"], UPDATE_TIMEOUT_SECONDS)
            if not any((folder / "lists").glob("*_Packages*")):  # apt's exit status is 0 even with no network
                raise WenhaiError("apt-get update: no package list could be fetched (is there a network?)")
        except WenhaiError:
            self.reachable = False
            raise


def run(command: list[str], timeout_seconds: int = DOWNLOAD_TIMEOUT_SECONDS, cwd: Path | None = None) -> str:
    """What a command prints; raises `WenhaiError` with its last word where it fails, is not there, or takes too
    long."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    name = " ".join(word for word in command[:1] + command[-2:] if not word.startswith("-"))
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise WenhaiError(f"{name}: no answer after {timeout_seconds} s") from error
    except OSError as error:
        raise WenhaiError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise WenhaiError(f"{name}: {last}")
    return done.stdout
