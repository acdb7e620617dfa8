"""The frontier: every known URL and its fate on disk, and which one is next."""
