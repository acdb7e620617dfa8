"""A checkpoint that is asked rather than trained: opened, its batches, scores."""
