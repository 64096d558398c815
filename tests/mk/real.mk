SCRIPT_TESTS += tests/cli/equivalence.py tests/cli/pytorch.py
SCRIPT_TESTS += tests/cli/replay.py
