"""What a reader sees of a plan."""
