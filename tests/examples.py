"""How many examples Hypothesis tries: all that a test asks for in CI, a quarter in `make test`."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> settings:
    """`number` of them where the profile has Hypothesis' usual 100."""
    return settings(max_examples=number * settings().max_examples // 100)
