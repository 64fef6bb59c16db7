"""What is on disk: run folders (logs/README.md) and what the exercises declare. Jobs write it, tools read it.

Only the standard library is needed, so that a launcher can record a run whose packages are broken.
"""
