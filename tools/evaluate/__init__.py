"""How often the rooms are right, on labelled or planted data: `python -m tools.evaluate.NAME`."""
