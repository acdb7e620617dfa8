"""Layouts that are run, and what their steps teach."""
