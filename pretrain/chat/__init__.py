"""Conversations and the templates that write them."""
