"""Makes `serving` and `measurements` importable from every test folder."""

import os
import sys
from pathlib import Path

# the tests run in as many processes as there are cores; small matrices gain nothing by threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent))
