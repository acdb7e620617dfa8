"""Tokenizer training, encoding, and the token shards that pretraining reads."""
