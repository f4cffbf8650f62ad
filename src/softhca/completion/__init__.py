"""Completion queues that the core polls, after the kernel's core/cq.c, and awaited work requests.

The objects of `softhca.verbs` have it as their methods; nothing here is imported by users.
"""
