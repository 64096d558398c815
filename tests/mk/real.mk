TESTS += test_train_options
$(BUILD)/tests/test_train_options: $(call obj,tests/unit/test_train_options.c runtime/train_options.c) \
                $(call lib,engine core models)
	$(TEST_LINK)
SCRIPT_TESTS += tests/cli/equivalence.py tests/cli/pytorch.py
SCRIPT_TESTS += tests/cli/replay.py
