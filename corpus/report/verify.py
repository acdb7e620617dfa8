"""Is what lies on disk what was built? Every file of every current stage, token shards included, against its manifest.

Readers trust manifests, so one flipped bit, a lost or a foreign file must be found before a training run finds it.
Every byte is read once, by threads: SHA-256 lets the interpreter go while it works. A manifest is checked against the
records of its tasks and against what later stages were built on, and these files byte for byte against how we write
such values. One field is left: by its digest a record knows the inputs of its task, and a changed one costs a repeated
task at the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from corpus.crawl.folders import CRAWL, crawl_folders
from corpus.crawl.folders import OWN_FILES as CRAWL_FILES
from corpus.engine import durable, storage, versions
from corpus.engine.errors import WenhaiError
from corpus.engine.executor import available_cpus, describe
from corpus.engine.manifest import KEYS, MANIFEST_NAME, PIECES, Listing, json_lines, piece_url
from corpus.engine.progress import Progress
from corpus.engine.records import DONE, MAX_RANGE_BYTES, Record
from corpus.engine.run import RUN_NAME, read_run
from corpus.engine.stage import FINGERPRINT_LENGTH, Counts, Folder
from corpus.report.summary import stage_order

RECIPE_NAME = "stage.json"
OWN_FILES = {MANIFEST_NAME, RECIPE_NAME, durable.LOCK_NAME, *CRAWL_FILES}
OWN_KINDS = {DONE, PIECES, "failed"}
SUM_KEYS = {"files", "bytes", "rows"}
ENTRY_KEYS = {"bytes", "sha256", "rows"}
Entry = Mapping[str, Any]
REPEAT = "Remove this file and run the same command again: only its task is repeated."
REPEAT_MISSING = "Run the same command again: only its task is repeated."
REPEAT_RECORD = (
    f"Remove this file and {MANIFEST_NAME} of its folder and run the same command again: only its task is repeated."
)
REBUILD_MANIFEST = (
    "Remove this file and run the same command again: it is made from the records of the tasks, and one without a "
    "record is repeated."
)
REBUILD_PIECE = f"Remove {MANIFEST_NAME} of its folder and run the same command again: both are made from the records."
REPEAT_RANGE = (
    f"Remove this file and {MANIFEST_NAME} of its folder and run the same command again: the tasks whose records stood "
    "in it are repeated."
)
REPEAT_BOTH = "Remove both and run the same command again: tasks without a record are repeated."
REBUILD = "Remove the stage folder and run the same command again."
RERUN = "Run the same command again."
REPEAT_CRAWL = "Restore it from a copy, or crawl again in another folder: pages are not fetched twice into one."


@dataclass(frozen=True)
class Problem:
    """Something that is not as it was built; `kind`: missing, size, sha256, extra, temporary or record."""

    kind: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind:<10} {self.path}: {self.detail}"


class _Recorded(NamedTuple):
    """A file of a stage as its manifest knows it."""

    url: str
    num_bytes: int
    sha256: str
    advice: str  # when its bytes are wrong


def verify(out: str, workers: int | None = None, progress: Progress | None = None) -> list[Problem]:
    """Check all current stages below `out`, and its crawl; the empty list means that every byte is in place.

    Args:
        out: the output folder of a run, local or in an object store, or the folder of a crawl.
        workers: files that are read at a time; default one a core.
        progress: where progress goes; silent by default.

    Raises:
        WenhaiError: `out` holds no run.
    """
    crawls = crawl_folders(out)
    is_run = not crawls or storage.exists(storage.join(out, RUN_NAME))
    entries = read_run(out)["stages"] if is_run else {}
    problems = list(_verify_index(out, entries))
    recorded: list[_Recorded] = []
    for url in crawls:
        problems.extend(_verify_crawl(url, recorded))
    sound: dict[str, Folder] = {}
    for name in stage_order(entries):
        url = storage.join(out, entries[name]["folder"])
        opened = _open(url)
        if isinstance(opened, Problem):
            problems.append(opened)
            continue
        found = list(_verify_folder(name, opened, sound, recorded))
        if not any(MANIFEST_NAME in problem.path + problem.detail for problem in found):
            sound[name] = opened  # with others, later stages are not compared: a fault is told once
        problems.extend(found)
    problems.extend(_hash(recorded, workers or available_cpus(), progress or Progress(quiet=True)))
    if not storage.is_remote(out):
        left = "left by a process that died, or being written now. The next run removes it."
        paths = durable.temporary_files(storage.local_path(out))
        problems.extend(Problem("temporary", str(path), left) for path in paths)
    return problems


def summary(problems: Sequence[Problem]) -> str:
    """How many problems of which kinds, in a few words.

    >>> summary([Problem("size", "a", ""), Problem("sha256", "b", ""), Problem("sha256", "c", "")])
    '3 problems (2 sha256, 1 size)'
    """
    kinds = [problem.kind for problem in problems]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    return f"{len(problems)} problem{'s' * (len(problems) != 1)} ({counted})"


def _verify_index(out: str, entries: Mapping[str, Any]) -> Iterator[Problem]:
    """Every stage of `run.json` stands on the current folders of those before it."""
    for name, entry in entries.items():
        for upstream, folder in entry["upstream"].items():
            if upstream not in entries or entries[upstream]["folder"] != folder:
                detail = f"{name} was built on {folder}, which is not the current folder of {upstream}. {RERUN}"
                yield Problem("record", storage.join(out, RUN_NAME), detail)


def _verify_folder(
    stage: str, folder: Folder, before: Mapping[str, Folder], recorded: list[_Recorded]
) -> Iterator[Problem]:
    """Check everything of a stage but the bytes of its files, which are added to `recorded`."""
    if folder.name != stage:
        manifest = storage.join(folder.url, MANIFEST_NAME)
        yield Problem("record", manifest, f"{RUN_NAME} calls it {stage}, here it is {folder.name}. {REBUILD}")
        return
    parts = _written(folder.url, RECIPE_NAME)
    if isinstance(parts, Problem):
        yield parts
        return
    yield from _verify_recipe(folder, parts, before)
    files = _listed(folder)
    if isinstance(files, Problem):
        yield files
        return
    present = storage.sizes(folder.url)
    found, places, wrong = _records(folder.url, present)
    agreed: Mapping[str, Entry] = files
    yield from wrong
    if not wrong:
        differing, agreed = _compare(folder, files, found, places)
        yield from differing
    yield from _verify_files(folder.url, present, files, agreed, recorded)


def _verify_crawl(url: str, recorded: list[_Recorded]) -> Iterator[Problem]:
    """Check the folder of a crawl, a stage of one task, but for the bytes of its files."""
    folder = _open(url)
    files = _listed(folder) if isinstance(folder, Folder) else folder
    record = _record(url, f"{CRAWL}.json") if not isinstance(files, Problem) else files
    if isinstance(folder, Problem) or isinstance(files, Problem) or isinstance(record, Problem):
        yield record if isinstance(record, Problem) else folder  # type: ignore[misc]
        return
    wrong, agreed = _compare(folder, files, {CRAWL: record}, {CRAWL: f"{DONE}/{CRAWL}.json"})
    yield from wrong
    yield from _verify_files(url, storage.sizes(url), files, agreed, recorded, REPEAT_CRAWL)


def _listed(folder: Folder) -> dict[str, Entry] | Problem:
    """What a manifest lists, by name, or the problem with one of its pieces."""
    url = storage.join(folder.url, MANIFEST_NAME)
    for number, sha256 in enumerate(folder.manifest["pieces"]):
        piece = piece_url(folder.url, number)
        if not storage.exists(piece):
            return Problem("missing", piece, f"it is not there. {REBUILD_PIECE}")
        if storage.sha256(piece) != sha256:
            return Problem("record", piece, f"it is not what {MANIFEST_NAME} says of it. {REBUILD_PIECE}")
    try:
        files: dict[str, Entry] = {
            file.url: {"bytes": file.bytes, "rows": file.rows, "sha256": file.sha256} for file in folder.listed()
        }
    except (WenhaiError, LookupError, TypeError) as error:
        return Problem("record", url, f"its list of files cannot be read ({describe(error)}). {REBUILD_MANIFEST}")
    sums = Listing()
    sums.add(files)
    if sums.kinds != folder.manifest["kinds"]:
        return Problem("record", url, f"it does not say what its list of files adds up to. {REBUILD_MANIFEST}")
    return files


def _verify_files(
    folder: str,
    present: Mapping[str, int],
    files: Mapping[str, Entry],
    agreed: Mapping[str, Entry],
    recorded: list[_Recorded],
    advice: str = "",
) -> Iterator[Problem]:
    """What is there against what is listed; files of the right size are added to `recorded`."""
    for name, entry in sorted(agreed.items()):
        url = storage.join(folder, name)
        if name not in present:
            yield Problem("missing", url, f"it is not there. {advice or REPEAT_MISSING}")
        elif present[name] != entry["bytes"]:
            sizes = f"{present[name]:,} bytes, the manifest says {entry['bytes']:,}"
            yield Problem("size", url, f"{sizes}. {advice or REPEAT}")
        else:
            recorded.append(_Recorded(url, entry["bytes"], entry["sha256"], advice or REPEAT))
    for name in sorted(present.keys() - files.keys()) if agreed == files else ():
        if not _is_own(name):
            url = storage.join(folder, name)
            yield Problem("extra", url, "no manifest lists it and no reader opens it. Move it away.")


def _verify_recipe(folder: Folder, parts: Mapping[str, Any], before: Mapping[str, Folder]) -> Iterator[Problem]:
    """A folder's name, its `stage.json`, its manifest and the manifests before it must tell of the same build."""
    written = parts.get(versions.WRITTEN_WITH)
    parts = {key: part for key, part in parts.items() if key != versions.WRITTEN_WITH}
    expected, url = durable.digest(parts), storage.join(folder.url, MANIFEST_NAME)
    is_sound = written is None or versions.is_sound(written)
    if not is_sound or not folder.url.rstrip("/").endswith("-" + expected[:FINGERPRINT_LENGTH]):
        recipe = storage.join(folder.url, RECIPE_NAME)
        yield Problem("record", recipe, f"it is of another build than its folder. {REBUILD}")
    elif (folder.manifest["fingerprint"], folder.manifest["version"]) != (expected, parts["version"]):
        yield Problem("record", url, f"it is of another build than {RECIPE_NAME}. {REBUILD_MANIFEST}")
    else:
        for name, digest in parts["upstream"].items():
            if name in before and before[name].digest != digest:
                earlier = storage.join(before[name].url, MANIFEST_NAME)
                yield Problem("record", earlier, f"{folder.name} was built when it said something else. {RERUN}")


def _compare(
    folder: Folder, ours: Mapping[str, Entry], found: Mapping[str, Record], places: Mapping[str, str]
) -> tuple[list[Problem], Mapping[str, Entry]]:
    """How the manifest is not what the tasks' records make, and the files of which both say the same."""
    manifest, url, counts = folder.manifest, storage.join(folder.url, MANIFEST_NAME), Counts()
    for record in found.values():
        counts.add(Counts(**record["counts"]))
    listed = {name: task for task, record in found.items() for name in record["files"]}
    theirs = {name: entry for record in found.values() for name, entry in record["files"].items()}
    agreed = {name: entry for name, entry in ours.items() if theirs.get(name) == entry}
    tasks = sorted({listed[name] for name in theirs if name not in agreed})
    if tasks:
        both = f"it and {places[tasks[0]]} disagree about {next(n for n in theirs if n not in agreed)}"
        more = f", and {len(tasks) - 1} more" if len(tasks) > 1 else ""
        return [Problem("record", url, f"{both}{more}. {REPEAT_BOTH}")], agreed
    if manifest["tasks"] != len(found):
        detail = f"it counts {manifest['tasks']} tasks, but there are {len(found)} records. {REBUILD_MANIFEST}"
        return [Problem("record", url, detail)], agreed
    if lost := sorted(ours.keys() - agreed.keys()):
        return [Problem("record", url, f"none of the records below done/ lists {lost[0]}. {REBUILD}")], agreed
    if manifest["counts"] != asdict(counts):
        return [Problem("record", url, f"its counts are not the sum of the records below done/. {REBUILD}")], agreed
    return [], agreed


def _hash(recorded: Sequence[_Recorded], workers: int, progress: Progress) -> Iterator[Problem]:
    """Read every file, several at a time, and yield what is wrong in the order of the list."""
    threads = ThreadPoolExecutor(workers)
    try:
        with progress.reading("verify", len(recorded), sum(file.num_bytes for file in recorded)) as advance:
            for file, problem in zip(recorded, threads.map(_hash_file, recorded), strict=True):
                advance(file.num_bytes)
                if problem is not None:
                    yield problem
    finally:
        threads.shutdown(cancel_futures=True)


def _hash_file(file: _Recorded) -> Problem | None:
    try:
        sha256 = storage.sha256(file.url)
    except OSError as error:
        return Problem("missing", file.url, f"cannot be read ({error.strerror or type(error).__name__}). {file.advice}")
    if sha256 != file.sha256:
        return Problem("sha256", file.url, f"its bytes changed after it was written. {file.advice}")
    return None


def _open(url: str) -> Folder | Problem:
    """A stage folder by its manifest, or the problem with that."""
    manifest = storage.join(url, MANIFEST_NAME)
    if not storage.exists(manifest):
        return Problem("missing", manifest, f"the stage is not complete. {RERUN}")
    try:
        value = _read_written(manifest)
        if value.keys() != KEYS or not all(sums.keys() == SUM_KEYS for sums in value["kinds"].values()):
            raise WenhaiError("it is of another form")
        return Folder.open(url)
    except WenhaiError as error:
        return Problem("record", manifest, f"{_reason(error, manifest)} {REBUILD_MANIFEST}")


def _written(folder: str, name: str) -> Any:
    """The value of one of our own JSON files, or the problem with it."""
    url = storage.join(folder, name)
    what_next = REBUILD if name == RECIPE_NAME else REPEAT_RECORD
    if not storage.exists(url):
        return Problem("missing", url, f"it is not there. {what_next}")
    try:
        return _read_written(url)
    except WenhaiError as error:
        return Problem("record", url, f"{_reason(error, url)} {what_next}")


def _records(folder: str, present: Mapping[str, int]) -> tuple[dict[str, Record], dict[str, str], list[Problem]]:
    """The records of a stage and the files they stand in, by task, and the problems with them: each must be as we write
    it."""
    found: dict[str, Record] = {}
    places: dict[str, str] = {}
    wrong: list[Problem] = []
    for name in sorted(name for name in present if name.startswith(f"{DONE}/")):
        url = storage.join(folder, name)
        if name.endswith(".json"):
            record = _record(folder, name.removeprefix(f"{DONE}/"))
            if isinstance(record, Problem):
                wrong.append(record)
            else:
                found[record["task"]], places[record["task"]] = record, name
            continue
        try:
            data = storage.read_bytes(url, MAX_RANGE_BYTES)
            values = json_lines(data, url)
            if b"".join(durable.canonical_json(value) + b"\n" for value in values) != data:
                raise WenhaiError(f"{url}: its bytes changed after it was written.")
        except WenhaiError as error:
            wrong.append(Problem("record", url, f"{_reason(error, url)} {REPEAT_RANGE}"))
            continue
        if not all(map(_is_record, values)):
            wrong.append(Problem("record", url, f"it is of another form. {REPEAT_RANGE}"))
            continue
        found |= {record["task"]: record for record in values}
        places |= {record["task"]: name for record in values}
    return found, places, wrong


def _record(folder: str, name: str) -> Record | Problem:
    """A task's record, or the problem with it."""
    value = _written(folder, f"{DONE}/{name}")
    if isinstance(value, Problem):
        return value
    if not _is_record(value) or value["task"] != name.removesuffix(".json"):
        return Problem("record", storage.join(folder, DONE, name), f"it is of another form. {REPEAT_RECORD}")
    record: Record = value
    return record


def _is_record(value: Any) -> bool:
    try:
        Counts(**value["counts"])
        return isinstance(value["task"], str) and all(entry.keys() == ENTRY_KEYS for entry in value["files"].values())
    except (KeyError, TypeError, AttributeError):
        return False


def _read_written(url: str) -> Any:
    """A JSON value whose file holds the bytes that we write for it; raises `WenhaiError`."""
    data = storage.read_bytes(url)
    value = durable.parse_json(data, url)
    if not isinstance(value, dict) or durable.json_bytes(value) != data:
        raise WenhaiError(f"{url}: its bytes changed after it was written.")
    return value


def _reason(error: WenhaiError, url: str) -> str:
    """What is wrong, without the path and the advice that the caller gives."""
    return str(error).removeprefix(f"{url}: ").split(". ")[0].rstrip(".") + "."


def _is_own(name: str) -> bool:
    """Whether a file of a stage folder is none of its outputs but ours: its records, or being written."""
    kind = name.split("/", 1)[0]
    is_record = name.endswith((".json", ".jsonl")) and kind in OWN_KINDS
    return name in OWN_FILES or is_record or bool(durable.TEMPORARY_NAME.match(Path(name).name))
