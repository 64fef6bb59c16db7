"""Tools for before and after a job: they read run folders (logs/README.md) and print tables, lists and plots.

The run folder is the only contract with the job; of `workshop/` only `record` and `settings` are imported: neither
needs torch, so the tools start at once, on a login node or a laptop where no training library is installed. Inside,
imports go one way: commands -> plan -> submit -> tables -> logs -> workshop/settings -> workshop/record.
"""
