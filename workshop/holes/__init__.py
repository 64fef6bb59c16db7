"""Participants' code for the holes in by-hand/holes: run on ranks, apart from everything else, and judged."""
