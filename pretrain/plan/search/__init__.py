"""All legal layouts, and the best of them."""
