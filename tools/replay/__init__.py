"""Runs that were measured before, written once more as if they ran now, and marked as that."""
