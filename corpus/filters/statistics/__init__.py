"""The families of statistics that one pass over the bytes measures, and the kernels that count for them."""
