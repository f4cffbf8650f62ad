"""Long runs at random, and short ones of the same for every check."""
