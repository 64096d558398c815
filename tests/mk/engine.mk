TESTS += test_options test_trace test_report
$(BUILD)/tests/test_options: $(call obj,tests/unit/test_options.c) $(call lib,engine core models base)
	$(TEST_LINK)
$(BUILD)/tests/test_trace: $(call obj,tests/unit/test_trace.c) $(call lib,engine core models base)
	$(TEST_LINK)
$(BUILD)/tests/test_report: $(call obj,tests/unit/test_report.c) $(call lib,engine core models base)
	$(TEST_LINK)
TESTS += test_capacity
$(BUILD)/tests/test_capacity: $(call obj,tests/unit/test_capacity.c) $(call lib,engine core models base)
	$(TEST_LINK)
TESTS += test_framework
$(BUILD)/tests/test_framework: $(call obj,tests/unit/test_framework.c) $(call lib,engine core models base)
	$(TEST_LINK)
