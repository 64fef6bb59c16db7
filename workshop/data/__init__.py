"""The data of a run: read by `datasets` (sources.py), cut and encoded (load.py)."""
