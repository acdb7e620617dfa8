"""`python -m corpus quality`: training of the linear quality model, on labels or on a build, and its assessment."""
