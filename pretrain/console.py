"""What the person who watches a run sees, on stderr: lines, and on a terminal one more line below them that is alive.

    step  340/1200  loss 5.1234  7.391 bits/char  norm 0.42  lr 2.71e-03  6,912 tokens/s  mfu n/a  0.61 GiB
      fwd 31%  bwd 58%  opt 9%  data 1%
     28%  step 340/1200  loss 5.123  6,912 tok/s  mfu n/a  0:01:03  eta 0:02:41  ━━━━━━━━━━━━━━━━━━╺━━━━━━━━━━━━━━━━━━

Where stderr is no terminal every report is one plain line, however long.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

GAP = "  "
REFRESHES_PER_SECOND = 2  # a thread draws: about a millisecond each time
LEAST_BAR = 10  # columns; a narrower one says nothing
MOST_BAR = 60
SHORT_PHASES = {
    "forward": "fwd",
    "backward": "bwd",
    "communication": "comm",
    "optimizer": "opt",
    "data": "data",
    "evaluate": "eval",
    "save": "save",
    "other": "other",
}


def log_message(message: str) -> None:
    """Talk goes to stderr: plain lines, one write each, so that ranks do not mix. Above the live line, where there is
    one."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


class Console:
    """The lines of one run; of rank 0."""

    def __init__(self, num_steps: int) -> None:
        self._state = Progress(num_steps)
        self._live: Any = None  # rich.live.Live
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console as RichConsole
            from rich.live import Live

            self._live = Live(
                self._state,
                console=RichConsole(stderr=True),
                refresh_per_second=REFRESHES_PER_SECOND,
                transient=True,
                redirect_stdout=False,  # what a run prints there is its result
            )
            self._live.start()

    def report(self, fields: Sequence[str]) -> None:
        """A line of fields; on a terminal as many as fit in its width, the rest indented below."""
        log_message(
            GAP.join(fields) if self._live is None else "\n".join(fold_fields(fields, self._live.console.width))
        )

    def show(self, step: int, loss: float) -> None:
        """Let the live line say what the last step was."""
        self._state.advance(step, loss)

    def show_speed(self, tokens_per_second: float, mfu: float | None) -> None:
        """Let the live line say what was reported last."""
        self._state.tokens_per_second, self._state.mfu = tokens_per_second, mfu

    def close(self) -> None:
        """Take the live line away; lines may follow."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class Progress:
    """How far a run is; it draws itself as one line of any width."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self.step: int | None = None
        self.loss = 0.0
        self.tokens_per_second = 0.0
        self.mfu: float | None = None
        self._first: tuple[int, float] | None = (
            None  # step, and when it was done: before it lies what no other step costs
        )
        self._last = 0.0
        self._began = time.monotonic()

    def advance(self, step: int, loss: float) -> None:
        """A step is done."""
        self._last = time.monotonic()
        if self._first is None:
            self._first = step, self._last
        self.step, self.loss = step, loss

    def seconds_left(self) -> float | None:
        """At the pace of this session, its evaluations and saves included; None before its second step."""
        if self.step is None or self._first is None or self.step == self._first[0]:
            return None
        pace = (self._last - self._first[1]) / (self.step - self._first[0])
        return max(0.0, pace * (self.num_steps - self.step) - (time.monotonic() - self._last))

    def fields(self) -> list[str]:
        """The most important first."""
        elapsed = duration(time.monotonic() - self._began)
        if self.step is None:
            return ["before the first step", elapsed]
        left = self.seconds_left()
        return [
            f"{self.step / self.num_steps:>4.0%}",
            f"step {self.step}/{self.num_steps}",
            f"loss {self.loss:.3f}",
            f"{self.tokens_per_second:,.0f} tok/s",
            f"mfu {percent(self.mfu)}",
            elapsed,
            f"eta {'?' if left is None else duration(left)}",
        ]

    def __rich_console__(self, console: Any, options: Any) -> Iterable[RenderableType]:
        """One line: as many fields as fit, and a bar where there is room for one."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        words = fold_fields(self.fields(), options.max_width)[0]
        row: list[RenderableType] = [Text(words, no_wrap=True, overflow="crop")]
        room = options.max_width - len(words) - len(GAP)
        if room >= LEAST_BAR:
            row.append(ProgressBar(self.num_steps, self.step or 0, width=min(room, MOST_BAR)))
        line = Table.grid(padding=(0, len(GAP), 0, 0))
        line.add_row(*row)
        yield line


def fold_fields(fields: Sequence[str], width: int) -> list[str]:
    """Fields in lines of up to `width` columns; all but the first line are indented, a field is never cut.

    >>> fold_fields(["step 1/9", "loss 5.0", "norm 0.1"], 20)
    ['step 1/9  loss 5.0', '  norm 0.1']
    """
    lines: list[str] = []
    for field in fields:
        if lines and len(lines[-1]) + len(GAP) + len(field) <= width:
            lines[-1] += GAP + field
        else:
            lines.append(GAP + field if lines else field)
    return lines


def time_split(shares: dict[str, float]) -> list[str]:
    """Shares of the time in a short form, those that round to nothing left out.

    >>> time_split({"data": 0.001, "forward": 0.314, "backward": 0.58, "communication": 0.1})
    ['fwd 31%', 'bwd 58%', 'comm 10%']
    """
    return [f"{short} {shares[name]:.0%}" for name, short in SHORT_PHASES.items() if shares.get(name, 0.0) >= 0.005]


def percent(share: float | None) -> str:
    """
    >>> percent(None), percent(0.4567)
    ('n/a', '45.7%')
    """
    return "n/a" if share is None else f"{share:.1%}"


def duration(seconds: float) -> str:
    """
    >>> duration(59.9), duration(3 * 86400 + 3661)
    ('0:00:59', '73:01:01')
    """
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
