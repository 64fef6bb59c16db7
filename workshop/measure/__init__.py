"""What a run records of itself: model facts, collectives, memory, profiles, by the Trainer or by hand."""
