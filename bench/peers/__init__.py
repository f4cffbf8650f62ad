"""What else there is. Each file knows one of them: whether it is here, and how to measure it."""
