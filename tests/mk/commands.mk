# What READMEs and help show, run as it is written; under the sanitizers its calibrations would take a quarter of an hour.
SCRIPT_TESTS += $(if $(SAN),,tests/cli/commands.py)
