SCRIPT_TESTS += tests/cli/validate.py tests/cli/published.py
