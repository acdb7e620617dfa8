"""Functions for the child process of corpus.sandbox: an item says what is to happen to it."""

from __future__ import annotations

import ctypes
import os
import time

HOARD: list[bytearray] = []


def act(item: bytes) -> bytes:
    """Do what `item` says; other items come back reversed."""
    if b"crash" in item:
        ctypes.string_at(0)
    elif b"spin" in item:
        pow(3, 1 << 40)  # one C loop that looks at no signal
    elif b"sleep" in item:
        time.sleep(100)
    elif b"eat" in item:
        bytes(4 << 30)
    elif b"exit" in item:
        os._exit(5)
    elif b"raise" in item:
        raise ValueError("as asked")
    elif b"hoard" in item:
        HOARD.append(bytearray(90 << 20))
    return item[::-1]
