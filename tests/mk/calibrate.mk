TESTS += test_profile test_fit
$(BUILD)/tests/test_profile: $(call obj,tests/unit/test_profile.c) $(call lib,profile models)
	$(TEST_LINK)
$(BUILD)/tests/test_fit: $(call obj,tests/unit/test_fit.c) $(call lib,fit profile models)
	$(TEST_LINK) $(GSL_LIBS)
SCRIPT_TESTS += tests/cli/calibrate.sh
