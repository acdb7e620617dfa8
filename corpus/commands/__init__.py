"""The commands of `python -m corpus` that no room has to itself: a module each, with `add_arguments` and `main`."""
