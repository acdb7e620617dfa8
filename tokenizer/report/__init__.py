"""What a vocabulary is like: figures by source, suspicious pieces, a page to read, a comparison of candidates."""

from tokenizer.report.suspicious import suspicious_pieces
from tokenizer.report.vocabulary import vocabulary_report

__all__ = ["suspicious_pieces", "vocabulary_report"]
