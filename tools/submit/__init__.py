"""Lists of runs and how they are started: on SLURM or on this machine. Reads tools.tables and tools.logs."""
