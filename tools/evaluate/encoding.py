"""How often `corpus.encoding.decode` is right, by kind: python -m tools.evaluate.encoding --data FOLDER

FOLDER holds `legacy/` (real files and `manifest.jsonl`, which gives each one's `encoding`) and `text/*.jsonl`. Right
means the very text that the true codec makes of the bytes as a browser reads them (corpus/whatwg.py), a character cut
off at the end left out; "damaged" files lack every 200th of their bytes beyond ASCII. The second table
re-encodes passages of the prose, and shows the detectors one would use instead beside ours. Everything is drawn with a
fixed seed.
"""

from __future__ import annotations

import argparse
import codecs
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import cchardet
from resiliparse.parse.encoding import detect_encoding

from corpus.encoding import UndecodableError, decode
from corpus.whatwg import decode_as
from tools.evaluate.shared import plain, read_texts

LIES = ("utf-8", "iso-8859-1", "gbk", "big5")
LENGTHS = (40, 100, 300, 1000)
CODECS = ("utf-8", "gb18030", "big5hkscs", "utf-16-le", "utf-16-be", "utf-32-le")
STATELESS = ("utf-8", "gb18030", "big5hkscs")
NUM_CUTS = 5
DAMAGED_EACH = 200
NUM_PASSAGES = 60
LABEL = re.compile(rb"(charset|encoding)(\s*=\s*[\"']?)[\w-]+", re.IGNORECASE)
BEYOND_ASCII = re.compile(rb"[\x80-\xff]")

Detector = Callable[[bytes], str | None]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="see above")
    parser.add_argument("--passages", type=int, default=NUM_PASSAGES, help="of each length and script")
    options = parser.parse_args(arguments)
    print(plain(legacy_table(options.data / "legacy")))
    print()
    print(plain(passage_table(options.data / "text", options.passages)))


def legacy_table(folder: Path) -> list[list[str]]:
    """Real files: share decoded right as they are, under lies, and cut."""
    chance = random.Random(0)
    right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for line in (folder / "manifest.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        if entry["encoding"] == "euc_tw":
            continue  # which is refused
        data, codec = (folder / entry["file"]).read_bytes(), _codec(entry["encoding"])
        for name, sample, header in _legacy_cases(data, chance):
            right[codec][name].append(decodes_to(sample, header, expected(sample, codec)))
    names = list(next(iter(right.values())))
    rows = [["legacy files", "files", *names]]
    for codec, cases in sorted(right.items()):
        rows.append([codec, str(len(cases[names[0]])), *(_share(cases[name]) for name in names)])
    return rows


def _legacy_cases(data: bytes, chance: random.Random) -> Iterator[tuple[str, bytes, str | None]]:
    unlabelled = LABEL.sub(b"", data[:4096]) + data[4096:]
    yield "as is", data, None
    yield "no label", unlabelled, None
    for lie in LIES:
        yield f"header {lie}", unlabelled, f"text/html; charset={lie}"
    yield "meta utf-8", LABEL.sub(rb"\1\2utf-8", data[:4096]) + data[4096:], None
    for _ in range(NUM_CUTS):
        yield "cut", unlabelled[: chance.randrange(len(data) // 2, len(data))], None
        start = chance.randrange(len(unlabelled) // 2)
        start = unlabelled.find(b"\n", start) + 1  # a stream joined in its middle begins at some line
        yield "middle", unlabelled[start : start + 4096], None
    places = [found.start() for found in BEYOND_ASCII.finditer(unlabelled)]
    damaged = bytearray(unlabelled)
    for place in sorted(chance.sample(places, len(places) // DAMAGED_EACH), reverse=True):
        del damaged[place]
    yield "damaged", bytes(damaged), None
    yield "200 B", unlabelled[:200], None
    yield "1 KB", unlabelled[:1024], None


def passage_table(folder: Path, num_passages: int) -> list[list[str]]:
    """Passages in every codec and wrapping, ours beside the others; lengths in characters."""
    detectors: dict[str, Detector] = {
        "resiliparse": detect_encoding,
        "cchardet": lambda data: cchardet.detect(data)["encoding"],
    }
    rows = [["passages", "chars", "cases", "decode", "lied to", "cut", *detectors]]
    chance = random.Random(1)
    for wrapping in ("bare", "html", "json"):
        for codec in CODECS:
            for length in LENGTHS:
                ours: dict[str, list[bool]] = defaultdict(list)
                for passage in _passages(folder, length, num_passages, codec == "big5hkscs"):
                    text = _encodable(_wrap(passage, wrapping), codec)
                    data = text.encode(codec)
                    ours["decode"].append(decodes_to(data, None, text))
                    ours["lied to"] += [decodes_to(data, lie, text) for lie in LIES]
                    if codec in STATELESS:
                        cut = data[: chance.randrange(len(data) // 2, len(data))]
                        ours["cut"].append(decodes_to(cut, None, expected(cut, codec)))
                    for name, detector in detectors.items():
                        ours[name].append(_detects(detector, data, text))
                shares = [_share(ours[name]) for name in rows[0][3:]]
                rows.append([f"{codec} {wrapping}", str(length), str(len(ours["decode"])), *shares])
    return rows


def decodes_to(data: bytes, header: str | None, text: str) -> bool:
    """Whether ours gives exactly this text."""
    try:
        return decode(data, header).text == text
    except UndecodableError:
        return False


def expected(data: bytes, codec: str) -> str:
    """What the true codec makes of the bytes, a character cut off at their end left out."""
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    decoder.decode(data)
    return decode_as(data[: len(data) - len(decoder.getstate()[0])], codec, replace=True).removeprefix("\ufeff")


@cache
def _passages(folder: Path, length: int, count: int, traditional: bool) -> tuple[str, ...]:
    """Passages of prose, all in Traditional characters or every second one."""
    import opencc

    long_enough = [text for texts in read_texts(folder).values() for text in texts if len(text) > length]
    chance = random.Random(length)
    to_traditional, to_simplified = opencc.OpenCC("s2t"), opencc.OpenCC("t2s")
    found: list[str] = []
    for text in chance.sample(long_enough, min(count, len(long_enough))):
        start = chance.randrange(len(text) - length)
        passage = text[start : start + length]
        converter = to_traditional if traditional or len(found) % 2 else to_simplified
        found.append(converter.convert(passage))
    return tuple(passage for passage in found if sum("\u4e00" <= char <= "\u9fff" for char in passage) * 4 >= length)


def _wrap(passage: str, wrapping: str) -> str:
    if wrapping == "html":
        body = passage.replace("\n", "</p>\n<p>")
        return f'<html><head><title>{passage[:8]}</title></head>\n<body class="page"><p>{body}</p></body></html>\n'
    if wrapping == "json":
        return json.dumps({"id": 7, "text": passage, "url": "https://example.org/a"}, ensure_ascii=False) + "\n"
    return passage


def _encodable(text: str, codec: str) -> str:
    """The text without the characters that a codec lacks."""
    return "".join(char for char in text if _is_in(char, codec))


@cache
def _is_in(char: str, codec: str) -> bool:
    try:
        return decode_as(char.encode(codec), codec) == char
    except UnicodeError:
        return False


def _codec(name: str) -> str:
    return {"big5": "big5hkscs", "utf_8": "utf-8"}.get(name, name)


def _detects(detector: Detector, data: bytes, text: str) -> bool:
    """Whether the codec named decodes to the text; a subset's name counts as its superset, as WHATWG has it."""
    name = (detector(data) or "").lower().replace("_", "-")
    name = {"gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs"}.get(name, name)
    try:
        return decode_as(data, name) == text
    except (LookupError, ValueError):
        return False


def _share(found: list[bool]) -> str:
    return f"{sum(found) / len(found):.2f}" if found else "-"


if __name__ == "__main__":
    main()
