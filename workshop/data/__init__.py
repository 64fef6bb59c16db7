"""What a run trains on: read by `datasets` (sources.py), cut and encoded (load.py)."""
