"""One question a file. Each has TITLE, and `ask(contest)` that gives findings as they come."""
