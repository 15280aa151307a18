"""The kernel for NVIDIA GPUs."""
