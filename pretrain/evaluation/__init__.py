"""What a trained model is worth: held-out bits per character, and scores of what may follow a text."""
