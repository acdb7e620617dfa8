"""What happened to every document: the ledger, the funnel, the report and the check of what is on disk."""
