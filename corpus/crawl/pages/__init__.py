"""What a page says: links, text, directives, how Chinese it is."""
