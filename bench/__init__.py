"""Measures softhca and what else there is, beside the limits of the machine: `python -m bench`."""
