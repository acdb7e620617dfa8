"""A manifest has no largest size, is read in parts, and is the same whoever wrote it in whatever order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import durable, manifest, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.manifest import Listing
from corpus.engine.stage import Folder

HEAD = {"stage": "filter", "version": 1, "fingerprint": "f", "tasks": 7, "counts": {}}


def entry(number: int) -> dict[str, Any]:
    return {"bytes": number, "rows": 2 * number, "sha256": f"{number:064x}"}


def names(kinds: tuple[str, ...], count: int) -> list[str]:
    return [f"{kind}/{number:05d}.x" for number in range(count) for kind in kinds]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PIECE_FILES", 4)


def write(url: str, listed: list[str]) -> Folder:
    listing = Listing()
    for number, name in enumerate(listed):
        listing.add({name: entry(number)})
    return Folder("filter", url, listing.commit(url, HEAD))


def test_all_files_and_those_of_a_kind_come_sorted(tmp_path: Path, small_pieces: None) -> None:
    listed = [*names(("statistics", "data", "data-x"), 5), "urls.parquet"]
    folder = write(str(tmp_path), listed[::-1])
    assert len(folder.manifest["pieces"]) == 4 and folder.num_files == 16
    assert [file.url for file in folder.listed()] == sorted(listed, key=lambda name: (manifest.kind_of(name), name))
    for kind in ("data", "data-x", "statistics", ""):
        expected = sorted(name for name in listed if manifest.kind_of(name) == kind)
        assert [file.url for file in Folder.open(str(tmp_path)).listed(kind)] == expected
        assert folder.number_of(kind) == len(expected)
    assert list(folder.listed("none")) == [] and folder.number_of("none") == 0
    of_data = folder.files()
    assert [file.url for file in of_data] == [f"{tmp_path}/data/{number:05d}.x" for number in range(5)]
    assert sum(file.rows for file in of_data) == folder.manifest["kinds"]["data"]["rows"]


def test_the_order_of_the_tasks_changes_nothing(tmp_path: Path, small_pieces: None) -> None:
    whole = {name: entry(number) for number, name in enumerate(names(("data", "fates"), 9))}
    folders = []
    for place, order in (("a", sorted(whole)), ("b", sorted(whole, reverse=True))):
        listing = Listing()
        for name in order:
            listing.add({name: whole[name]})
        folders.append(Folder("filter", place, listing.commit(str(tmp_path / place), HEAD)))
    assert folders[0].manifest == folders[1].manifest and folders[0].digest == folders[1].digest
    for name in ("MANIFEST.json", "manifest/00004.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_one_kind_costs_its_own_pieces(tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(str(tmp_path), names(("a", "b", "c"), 12))
    read, real = [], storage.read_bytes
    monkeypatch.setattr(storage, "read_bytes", lambda url, *rest: read.append(url[-11:]) or real(url, *rest))
    assert len(list(folder.listed("b"))) == 12
    assert read == [f"{number:05d}.jsonl" for number in (3, 4, 5)]


def test_more_files_than_one_json_file_could_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a small JSON file of ours, which ended a stage of 107,000 shards, is lowered instead of met."""
    monkeypatch.setattr(durable, "MAX_JSON_BYTES", 20_000)
    monkeypatch.setattr(manifest, "PIECE_FILES", 100)
    assert len(json.dumps({name: entry(0) for name in names(("data",), 1000)})) > 20_000
    write(str(tmp_path), names(("data",), 1000))
    assert len(Folder.open(str(tmp_path)).files()) == 1000


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_piece_is_named_with_what_to_do(tmp_path: Path, small_pieces: None, damage: str) -> None:
    folder = write(str(tmp_path), names(("data",), 9))
    piece = tmp_path / "manifest/00001.jsonl"
    data = piece.read_bytes()
    if damage == "gone":
        piece.unlink()
    else:
        piece.write_bytes(data[:-1] if damage == "cut" else data.replace(b'"rows":8', b'"rows":9'))
    with pytest.raises(WenhaiError, match=r"manifest/00001\.jsonl: " + ("cannot" if damage == "gone" else "not what")):
        list(folder.listed())


@pytest.mark.parametrize("text", ["[]", '{"format": 3}', '{"format": 2}', "{"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "MANIFEST.json").write_text(text)
    with pytest.raises(WenhaiError, match=r"MANIFEST\.json: not "):
        Folder.find(str(tmp_path))


def test_one_of_an_earlier_version_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "MANIFEST.json").write_text('{"format": 1, "stage": "filter", "files": {}}')
    assert Folder.find(str(tmp_path)) is None and Folder.find(str(tmp_path / "none")) is None
    with pytest.raises(WenhaiError, match=r"built by an earlier version\. Run the command that built it again"):
        Folder.open(str(tmp_path))
