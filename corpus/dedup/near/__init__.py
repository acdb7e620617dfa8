"""Whole documents that are the same or nearly so: MinHash, buckets, verified pairs, clusters, survivors."""
