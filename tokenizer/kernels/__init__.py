"""Encoding in bulk: SentencePiece's two algorithms over UTF-8 bytes, with its very ids."""
