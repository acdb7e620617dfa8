"""A training run, from the command line to its last step."""
