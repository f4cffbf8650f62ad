"""The kernel's user ABI without the kernel: unmodified programs find our adapters as devices."""
