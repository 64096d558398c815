SCRIPT_TESTS += tests/cuda/resources.sh
