TESTS += test_models
$(BUILD)/tests/test_models: $(call obj,tests/unit/test_models.c) $(call lib,models)
	$(TEST_LINK)
