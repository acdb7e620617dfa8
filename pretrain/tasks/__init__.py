"""Questions with right answers: FewCLUE's and ZeroCLUE's nine tasks, and those that a user writes the same way."""
