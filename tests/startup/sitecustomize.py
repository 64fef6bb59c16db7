"""Python runs this first in each process of the tests (PYTHONPATH, conftest.py), so that it starts sooner.

Every process that trains imports the libraries. Searches for cyclic garbage are a fifth of that time. bitsandbytes,
which the Trainer imports by way of peft, is another quarter; only further/lora/ uses it, and there it is.
"""

import gc
import os
import sys

gc.set_threshold(1_000_000, 50, 1000)
if not os.environ.get("EXERCISE_DIR", "/lora").endswith("/lora"):  # set by the launchers
    sys.modules["bitsandbytes"] = None  # as where it is not installed
