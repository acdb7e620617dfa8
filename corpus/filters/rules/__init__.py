"""What recipes say beside plain ranges: conditions, and rules of one's own."""
