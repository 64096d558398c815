TESTS += test_platform
$(BUILD)/tests/test_platform: $(call obj,tests/unit/test_platform.c) $(call lib,sim engine core profile models)
	$(TEST_LINK) -lsimgrid
SCRIPT_TESTS += tests/cli/simulate.sh tests/cli/sweep.sh
