"""A live view of the runs."""
