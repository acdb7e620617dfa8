"""Hugging Face layouts of our models, both ways."""
