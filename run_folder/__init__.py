"""What a run folder holds (logs/README.md), as Python: `workshop/` writes it, `tools/` reads it.

Neither of the two imports the other.

Nothing here needs more than the standard library, so that a launcher can record a run whose packages are broken.
"""
