# Not tests: see make bench.
$(BUILD)/tests/polling: $(call obj,tests/bench/polling.c) $(call lib,net device models)
	$(LINK) $(MPI_LIBS) $(BLAS_LIBS) -ljansson -lm
$(BUILD)/tests/half: $(call obj,tests/bench/half.c) $(call lib,device models)
	$(LINK) $(BLAS_LIBS) -ljansson -lm
$(BUILD)/tests/gpu: $(call obj,tests/bench/gpu.c) $(call lib,profile engine core device models)
	$(LINK) $(DEVICE_LIBS) -ljansson -lm
SCRIPT_TESTS += tests/cli/gpu.sh
run-tests: $(BUILD)/tests/gpu $(BUILD)/emulated/device_cuda.so
