"""Examples that stand before an item: drawn once for a task, the same before every item (in-context learning)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from corpus.engine.errors import UsageError
from pretrain.tasks.items import Item


def draw_shots(items: Sequence[Item], num_shots: int, seed: int) -> tuple[Item, ...]:
    """`num_shots` of the items in random order, of each answer as many as of another as far as that goes.

    The same items, number and seed give the same examples. Answers that have too few items leave their share to others.

    Raises:
        UsageError: fewer items than that.
    """
    if not 0 <= num_shots <= len(items):
        raise UsageError(f"{num_shots} examples: there are {len(items)} to draw from. Ask for no more than that.")
    chance = random.Random(seed)
    by_choice: dict[int, list[Item]] = {}
    for item in chance.sample(items, len(items)):
        by_choice.setdefault(item.choice, []).append(item)
    drawn: list[Item] = []
    while len(drawn) < num_shots:  # one of each answer a round
        for choice in chance.sample(sorted(by_choice), len(by_choice)):
            if by_choice[choice] and len(drawn) < num_shots:
                drawn.append(by_choice[choice].pop())
    chance.shuffle(drawn)
    return tuple(drawn)
