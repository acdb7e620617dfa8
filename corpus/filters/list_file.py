"""Lists that a user gives: plain text, one entry a line, bounded in size, never a pattern."""

from __future__ import annotations

from pathlib import Path

from corpus.engine.errors import UsageError

MAX_LIST_BYTES = 16 << 20


def read_list(path: Path, setting: str, max_chars: int, hint: str = "") -> list[str]:
    """The entries of a UTF-8 file, stripped; empty lines and lines that begin with `#` are left out.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, is larger than 16 MiB, or has an entry of more than
            `max_chars`.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_LIST_BYTES + 1)
    except OSError as error:
        wanted = f"a file that can be read{', ' + hint if hint else ''}"
        raise UsageError(f"{setting}: {path}: {error.strerror}. Give {wanted}.") from error
    if len(data) > MAX_LIST_BYTES:
        raise UsageError(f"{path}: larger than {MAX_LIST_BYTES:,} bytes; split off what is not needed.")
    entries = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            entry = line.decode().strip().lstrip("\ufeff")
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}, line {number}: not UTF-8. Convert it: iconv -f gb18030 -t utf-8") from error
        if entry.startswith("#") or not entry:
            continue
        if len(entry) > max_chars:
            raise UsageError(f"{path}, line {number}: {len(entry)} characters; one entry a line, at most {max_chars}.")
        entries.append(entry)
    return entries
