"""Documents that contain evaluation items."""
