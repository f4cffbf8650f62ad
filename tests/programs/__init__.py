"""Random verbs programs, run the same way over every link and against a model of the verbs."""
