"""The command line: parse arguments, call the library, print results."""

import os

# Matrices are small here: two threads of linear algebra that wait for each other take three times as long as one, and
# twenty times where anything else runs. Libraries read this when they are loaded, so before anything is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
