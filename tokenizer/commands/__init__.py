"""The verbs of `python -m tokenizer`, a module each with `add_arguments(parser)` and `main(options)`."""
