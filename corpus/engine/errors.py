"""Errors a person can act on: each says where, what, and what to do next.

The command line prints the message of a `WenhaiError` without a traceback and exits with its `exit_code`; any other
exception is a bug and keeps its traceback.
"""

from __future__ import annotations


class WenhaiError(Exception):
    """Something outside the code is wrong (a file, a disk, an input). Exit code 1."""

    exit_code = 1


class Missing(WenhaiError):
    """A file that is asked for does not exist. Exit code 1."""


class DiskError(WenhaiError):
    """The disk refused to take a file (full, read-only, I/O error): more work would end the same way. Exit code 1."""


class SetupError(WenhaiError):
    """What all tasks of a stage need is not there (a server does not answer): the stage ends. Exit code 1."""


class TransientError(WenhaiError):
    """A store or the network failed again and again, in a way that passes: repeated later, the work may go on. Exit
    code 1."""


class UsageError(WenhaiError):
    """The command line, recipe or configuration is wrong. Exit code 2."""

    exit_code = 2


class LockHeld(WenhaiError):
    """Another run works on the same folder. Exit code 3."""

    exit_code = 3


class InputError(WenhaiError):
    """Too much of what was read is not what the recipe says it is, or nothing of it was kept. Exit code 4."""

    exit_code = 4


class Stopped(WenhaiError):
    """The run was asked to stop and can be resumed by the same command. Exit code 75 (sysexits' EX_TEMPFAIL)."""

    exit_code = 75
