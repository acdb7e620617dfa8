"""The families of statistics that one pass over the bytes measures."""
