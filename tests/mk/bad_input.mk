SCRIPT_TESTS += tests/cli/bad_input.py
