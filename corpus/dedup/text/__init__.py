"""What is compared of a text: its folded characters, and its exact key."""
