"""Where the CPU time of a block goes: named functions are wrapped, and each is charged what it does not pass on.

A probe's time is exclusive: a probed function called inside another one is charged itself, and the outer one is not. So
the shares add up, and what no probe covers stays with the block around it. One thread; a wrapped call costs a
microsecond or two, so what runs once a document may be wrapped and what runs once a character may not.
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock


class Clock:
    """CPU nanoseconds by block: each instant is charged to the innermost label, within the innermost section."""

    def __init__(self) -> None:
        self.spent: dict[tuple[str, str], int] = defaultdict(int)
        self._open: list[tuple[str, str]] = []
        self._since = 0

    @contextmanager
    def section(self, name: str, label: str) -> Iterator[None]:
        """What happens in the block is charged to section `name`, under `label` where no probe says more."""
        self._turn()
        self._open.append((name, label))
        try:
            yield
        finally:
            self.leave()

    def enter(self, label: str) -> None:
        """Charge `label` in the section around until `leave`; outside of a section the section's name is empty."""
        self._turn()
        self._open.append((self._open[-1][0] if self._open else "", label))

    def leave(self) -> None:
        """Charge what was charged before."""
        self._turn()
        self._open.pop()

    def _turn(self) -> None:
        now = time.process_time_ns()
        if self._open:
            self.spent[self._open[-1]] += now - self._since
        self._since = now


@contextmanager
def probed(clock: Clock, probes: Mapping[str, str]) -> Iterator[None]:
    """In the block every probed function is charged to its label.

    Args:
        clock: what is charged.
        probes: "package.module:function" or "package.module:Class.method" to labels; generators are charged for each
            item, and several functions may share a label.

    Raises:
        AttributeError: a probe names what is not there.
    """
    with ExitStack() as stack:
        for target, label in probes.items():
            owner, name = resolve(target)
            stack.enter_context(mock.patch.object(owner, name, _charged(getattr(owner, name), label, clock)))
        yield


def resolve(target: str) -> tuple[Any, str]:
    """The module or class, and the name in it, of "package.module:Class.method"."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    getattr(owner, name)
    return owner, name


def _charged(function: Callable[..., Any], label: str, clock: Clock) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):

        def items(*values: Any, **named: Any) -> Iterator[Any]:
            made = function(*values, **named)
            while True:
                clock.enter(label)
                try:
                    item = next(made)
                except StopIteration:
                    return
                finally:
                    clock.leave()
                yield item

        return items

    def call(*values: Any, **named: Any) -> Any:
        clock.enter(label)
        try:
            return function(*values, **named)
        finally:
            clock.leave()

    return wraps(function)(call) if inspect.isfunction(function) else call
