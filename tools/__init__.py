"""Tools for before and after a job: they read run folders (logs/README.md) and print tables, lists and plots.

Nothing here imports torch, transformers or `workshop/`: the run folder is the only contract with the job, so the tools
start at once, on a login node or a laptop where no training library is installed.
"""
