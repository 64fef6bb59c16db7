"""A live view of the runs, from their folders alone: files are read from where the last look ended."""
