SCRIPT_TESTS += tests/cli/equivalence.py tests/cli/pytorch.py
