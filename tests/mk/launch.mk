TESTS += test_launch
$(BUILD)/tests/test_launch: $(call obj,tests/unit/test_launch.c) $(call lib,launch engine core models base)
	$(TEST_LINK) $(LAUNCH_LIBS)
SCRIPT_TESTS += tests/cli/launch.py
