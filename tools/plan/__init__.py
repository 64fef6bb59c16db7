"""What a run will need, predicted before it is queued, and how wrong that was for runs that were measured."""
