# The same core in every order of messages: what memory it touches, test_core touches, and under the sanitizers this takes minutes.
TESTS += test_core test_gather $(if $(SAN),,test_interleavings)
$(BUILD)/tests/test_gather: $(call obj,tests/unit/test_gather.c) $(call lib,engine core models base)
	$(TEST_LINK)
$(BUILD)/tests/test_core: $(call obj,tests/unit/test_core.c) $(call lib,paper engine core models base)
	$(TEST_LINK)
$(BUILD)/tests/test_interleavings: $(call obj,tests/unit/test_interleavings.c) $(call lib,core)
	$(TEST_LINK)
SCRIPT_TESTS += tests/cli/purity.sh
