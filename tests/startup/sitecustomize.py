"""Python runs this first in each process of the tests (PYTHONPATH, conftest.py): fewer searches for cyclic garbage.

They are a fifth of the time to import the libraries, which every process that trains does.
"""

import gc

gc.set_threshold(100_000, 50, 1000)
