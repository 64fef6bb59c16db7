"""A training step without its GPU: memory and kernels from the same code on the meta device."""
