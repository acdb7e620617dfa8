"""`python -m WORDS` in this process: a start of Python for each of a hundred pages took a minute."""

from __future__ import annotations

import io
import os
import runpy
import sys
import warnings
from contextlib import redirect_stdout
from functools import cache
from unittest import mock


def run_module(*words: str) -> object:
    """Run the module `words[0]` with the other words; the exit code."""
    leave = mock.patch.object(os, "_exit", sys.exit)  # how a process that has loaded torch ends
    with leave, mock.patch.object(sys, "argv", list(words)), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module has been imported before
        try:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            return ended.code
    return None


@cache
def help_of(*words: str) -> str:
    """What the module `words[0]` prints with the other words and `--help`; it has to end with exit code 0."""
    said = io.StringIO()
    with redirect_stdout(said):
        code = run_module(*words, "--help")
    assert code == 0, f"{' '.join(words)} --help: {code}"
    return said.getvalue()
