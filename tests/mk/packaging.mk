SCRIPT_TESTS += tests/cli/doctor.py $(if $(SAN),,tests/cli/manual.py tests/cli/install.py tests/cli/library.py)
