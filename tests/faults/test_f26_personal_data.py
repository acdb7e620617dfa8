"""FAULTS row 26: personal data planted in the input reach no report, log, ledger, sample, error or kept text.

One build over documents that are kept, dropped, duplicated and damaged, then every command that shows something. All
files it leaves are searched, Parquet decoded. Raw values stand where policy keeps them and nowhere else: in `data/` of
the stage before the filter (extract), which holds what was read. A secret in an address stands nowhere, and the address
still finds its document.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpus.__main__ import main
from corpus.filters import load
from corpus.filters.adapters.stream import run_stream
from tests.corpus.texts import document

SECRETS = {
    "email": "zhang.san@example.com",
    "id_card": "11010519491231002X",
    "bank_card": "6222020012345678903",
    "mobile": "13800138000",
    "landline": "010-62785001",
    "ipv4": "123.125.114.144",
    "ipv6": "240e:3a1:5c2f:9d10::8a2e",
    "wechat": "xiao_li8823",
    "qq": "876543219",
    "passport": "E12345678",
    "plate": "京A·12345",
}
SENTENCE = (
    "邮箱{email}，身份证{id_card}，银行卡号{bank_card}，手机{mobile}，电话{landline}，来自{ipv4}和IP地址{ipv6}，微信号：{wechat}，"
    "QQ：{qq}，护照号码{passport}，车牌{plate}的车。"
).format_map(SECRETS)
URL_SECRET = "13912345678"
WIDE = "１３７００１３７０００"  # what normalisation leaves full-width is masked too


def record(seed: int, text: str) -> bytes:
    fields = {"text": text, "url": f"https://example.org/{seed}.html?phone={URL_SECRET}"}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def lines() -> list[bytes]:
    """Documents and bad lines, all with secrets."""
    kept = [record(seed, f"{document(seed)}\n{SENTENCE}手机{WIDE}。\n{document(seed + 500)}") for seed in range(12)]
    twins = [kept[3], record(900, f"{document(4)}\n{SENTENCE}手机{WIDE}！\n{document(504)}")]
    dropped = [
        record(901, SENTENCE[:45]),
        record(902, (SENTENCE + "加微信领取优惠，") * 20),
        record(903, SENTENCE + "hello world, this is plain English text about nothing. " * 40),
        record(904, f"{SENTENCE}\n" * 60),
    ]
    bad = [
        b'{"text": "' + SENTENCE.encode() + b"\n",
        record(905, SENTENCE).decode().encode("gbk"),
        json.dumps({"txt": SENTENCE}, ensure_ascii=False).encode() + b"\n",
        SENTENCE.encode() + b"\n",
        b'{"text": ["' + SENTENCE.encode() + b'"]}\n',
        json.dumps({"text": SENTENCE + "长" * 400_000}, ensure_ascii=False).encode() + b"\n",
    ]
    return kept + twins + dropped + bad


def found_in(content: str) -> list[str]:
    """Kinds whose raw value stands in a text."""
    return [kind for kind, value in {**SECRETS, "wide": WIDE}.items() if value in content]


def contents(out: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(out.rglob("*")):
        if path.suffix == ".parquet":
            yield path.relative_to(out), repr(pq.read_table(path).to_pylist())
        elif path.is_file():
            yield path.relative_to(out), path.read_bytes().decode("utf-8", "replace")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    title = json.dumps(SENTENCE, ensure_ascii=False).encode()
    (folder / "in.jsonl").write_bytes(b"".join(lines()).replace(b'"url": ', b'"title": %s, "url": ' % title))
    assert main(command(folder)) == 0
    return folder / "out"


def command(folder: Path) -> list[str]:
    paths = ["--input", str(folder / "in.jsonl"), "--out", str(folder / "out")]
    sets = ["--set", "sources.max_line_bytes=1_000_000", "--set", "sources.max_error_ratio=1"]
    return ["run", "--recipe", "web_zh", *paths, "--workers", "0", *sets]


def is_raw_by_design(path: Path) -> bool:
    return path.parts[0].startswith("extract-") and "data" in path.parts


def test_no_file_of_a_build_holds_a_raw_value(build: Path) -> None:
    leaks = {
        str(path): kinds for path, text in contents(build) if not is_raw_by_design(path) if (kinds := found_in(text))
    }
    assert leaks == {}
    assert [str(path) for path, text in contents(build) if URL_SECRET in text] == []


def test_an_address_finds_its_document_although_it_is_stored_without_the_secret(
    build: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(build), f"https://example.org/5.html?phone={URL_SECRET}"]) == 0
    assert "https://example.org/5.html" in capfd.readouterr().out
    assert main(["explain", str(build), "https://example.org/5.html?phone=13912345679x"]) != 0


def test_the_search_would_see_a_leak(build: Path) -> None:
    raw = [text for path, text in contents(build) if is_raw_by_design(path)]
    assert raw and found_in("".join(raw)) == [*SECRETS, "wide"]
    texts = "".join(
        text for path, text in contents(build) if path.parts[0].startswith("filter-") and "data" in path.parts
    )
    for kind in SECRETS:
        assert f"<{kind.upper()}>" in texts


@pytest.mark.long
def test_nothing_that_is_shown_holds_a_raw_value(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        command(build.parent),
        ["explain", str(build), f"https://example.org/5.html?phone={URL_SECRET}"],
        ["explain", str(build), "extract-00000:13"],
        ["verify", str(build)],
    ):
        main(arguments)
    main(["run", "--recipe", "web_zh", "--input", str(build.parent / "in.jsonl"), "--out", str(build.parent / "other")])
    captured = capfd.readouterr()
    reports = "".join(path.read_text(encoding="utf-8") for path in build.glob("report.*"))
    assert found_in(captured.out + captured.err + reports) == []
    assert len(reports) > 1000 and URL_SECRET not in reports and URL_SECRET not in captured.err


@pytest.mark.parametrize("policy", ["all", "drop"])
def test_a_stream_shows_nothing(policy: str) -> None:
    """Bad lines are named by number and byte; what is dropped is written masked."""
    overrides = ["filter.personal.mobile.max=0"] if policy == "drop" else []
    stdout, stderr, dropped = io.BytesIO(), io.StringIO(), io.BytesIO()
    whole = b"".join(line for line in lines())
    summary = run_stream(
        io.BytesIO(whole), stdout, stderr, load("web_zh", overrides), dropped=dropped, max_line_bytes=1_000_000
    )
    assert sum(summary.bad.values()) == 6 and "line 19" in stderr.getvalue()
    written = (stdout.getvalue() + dropped.getvalue()).decode()
    assert found_in(written) == [] and found_in(stderr.getvalue()) == [] and URL_SECRET not in stderr.getvalue()
    assert "<MOBILE>" in written
