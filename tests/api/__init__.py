"""The Python API: what it does, refuses and leaves behind."""
