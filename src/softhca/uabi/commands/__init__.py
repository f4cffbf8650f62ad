"""The commands of uverbs: one table for ioctl(2) and write(2), and what each of them does."""
