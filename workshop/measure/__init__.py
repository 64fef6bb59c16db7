"""Records of a run: model facts, collectives, memory and profiles, with the Trainer or by hand."""
