"""The run folder (logs/README.md) as Python: jobs write it, tools read it, and import nothing else of `workshop/`.

Nothing here needs more than the standard library, so that a launcher can record a run whose packages are broken.
"""
