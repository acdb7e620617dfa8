"""The crawler: seeds to WARC, with politeness, budgets and a guard.

Scrapy carries the requests (spider.py); everything that decides is ours, in rooms of their own: which URL next
(frontier/), how URLs are read and which never end (urls/), whom a connection may reach and what an answer may cost
(network/), what sites ask for (politeness/), what a page says (pages/), what is kept of it (archive/). visits.py is the
order of the steps: read it first; session.py is one run, run.py the folder it works in.
"""
