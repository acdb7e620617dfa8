"""What the demos read and crawl."""
