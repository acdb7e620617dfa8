"""One training step: optimizer, loss scale, counters."""
