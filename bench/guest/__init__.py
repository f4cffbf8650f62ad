"""What runs in the guest whose kernel has Soft-RoCE."""
