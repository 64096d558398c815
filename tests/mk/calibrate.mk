TESTS += test_profile test_model test_surface test_fit test_samples test_family test_kineto
$(BUILD)/tests/test_profile: $(call obj,tests/unit/test_profile.c) $(call lib,profile models base)
	$(TEST_LINK)
$(BUILD)/tests/test_model: $(call obj,tests/unit/test_model.c) $(call lib,profile models base)
	$(TEST_LINK)
$(BUILD)/tests/test_surface: $(call obj,tests/unit/test_surface.c) $(call lib,fit profile models base)
	$(TEST_LINK)
$(BUILD)/tests/test_fit: $(call obj,tests/unit/test_fit.c) $(call lib,fit profile models base)
	$(TEST_LINK) $(GSL_LIBS)
$(BUILD)/tests/test_samples: $(call obj,tests/unit/test_samples.c) $(call lib,calibrate fit profile engine core models base)
	$(TEST_LINK) $(GSL_LIBS)
$(BUILD)/tests/test_family: $(call obj,tests/unit/test_family.c) $(call lib,calibrate engine core models base)
	$(TEST_LINK)
$(BUILD)/tests/test_kineto: $(call obj,tests/unit/test_kineto.c) $(call lib,calibrate fit profile kineto engine core models base)
	$(TEST_LINK) -lz
SCRIPT_TESTS += tests/cli/calibrate.sh tests/cli/trace.py
