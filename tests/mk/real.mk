TESTS += test_train_options
$(BUILD)/tests/test_train_options: $(call obj,tests/unit/test_train_options.c runtime/train_options.c) \
                $(call lib,engine core models)
	$(TEST_LINK)
SCRIPT_TESTS += tests/cli/equivalence.py tests/cli/pytorch.py tests/cli/allreduce.sh tests/cli/offload.py
$(BUILD)/tests/allreduce_half: $(call obj,tests/unit/allreduce_half.c) $(call lib,net models)
	$(TEST_LINK) $(MPI_LIBS)
run-tests: $(BUILD)/tests/allreduce_half
