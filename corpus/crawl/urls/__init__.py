"""URLs: read as browsers read them, told apart, and the endless ones recognised."""
