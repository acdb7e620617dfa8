"""The crawler: seeds to WARC, with manners, budgets and a guard.

Scrapy carries the requests (spider.py paces them, handler.py is its download handler over aiohttp); everything that
decides is ours and small: which URL next (frontier.py), whether it may be asked for (robots.py, traps.py), whom a
connection may reach (address.py), how long a host is left alone (politeness.py), what a page says about itself
(page.py, directives.py), and what is kept of it (archive.py).
"""
