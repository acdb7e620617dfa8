"""A vocabulary for Hugging Face's libraries, with ids that are proven equal before a folder is written."""
