"""The run folder (logs/README.md) as Python: jobs write it, tools read it and import nothing else of `workshop/`.

Only the standard library is needed, so that a launcher can record a run whose packages are broken.
"""
