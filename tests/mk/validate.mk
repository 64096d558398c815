SCRIPT_TESTS += tests/cli/validate.py
