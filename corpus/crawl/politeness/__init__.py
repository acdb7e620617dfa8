"""Manners: what robots.txt and pages ask for, and how long a host is left alone."""
