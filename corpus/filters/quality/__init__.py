"""Is it good text? A shipped table of character pairs, a linear model of one's own, a language model."""
