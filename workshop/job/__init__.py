"""What runs in a job around its training: one process per job (supervisor.py), one per node (node.py).

Both need nothing but the standard library, so that a run is recorded whose Python packages are broken. What the
supervisor does with a signal is a table in resilience/README.md.
"""
