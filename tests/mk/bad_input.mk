SCRIPT_TESTS += tests/cli/bad_input.py tests/cli/unmodelled.py
