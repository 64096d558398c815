TESTS += test_data test_checkpoint test_state
$(BUILD)/tests/test_state: $(call obj,tests/unit/test_state.c $(wildcard runtime/checkpoint/*.c)) $(call lib,models base)
	$(TEST_LINK)
$(BUILD)/tests/test_data: $(call obj,tests/unit/test_data.c runtime/data/data.c) $(call lib,models base)
	$(TEST_LINK)
$(BUILD)/tests/test_checkpoint: $(call obj,tests/unit/test_checkpoint.c $(wildcard runtime/checkpoint/*.c)) $(call lib,models base)
	$(TEST_LINK)
SCRIPT_TESTS += tests/cli/dispatcher.sh
SCRIPT_TESTS += tests/cli/sample.py
