"""What IBTA Vol 1, its annexes and Linux's own traffic say, held against the sans-IO adapter."""
