TESTS += test_kernels test_device test_workload test_optim test_gradients
$(BUILD)/tests/test_kernels: $(call obj,tests/unit/test_kernels.c) $(call lib,device models)
	$(TEST_LINK) $(BLAS_LIBS)
$(BUILD)/tests/test_device: $(call obj,tests/unit/test_device.c) $(call lib,nn device models)
	$(TEST_LINK) $(BLAS_LIBS)
$(BUILD)/tests/test_workload: $(call obj,tests/unit/test_workload.c) $(call lib,nn device models)
	$(TEST_LINK) $(BLAS_LIBS)
$(BUILD)/tests/test_optim: $(call obj,tests/unit/test_optim.c) $(call lib,nn device models)
	$(TEST_LINK) $(BLAS_LIBS)

# Device, nn and optim once more in double precision, where finite differences can tell a wrong gradient.
double_sources := $(device) $(wildcard runtime/nn/*.c runtime/optim/*.c) runtime/data/data.c
double_obj = $(patsubst %.c,$(BUILD)/obj-double/%.o,$(1))
$(BUILD)/obj-double/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(DEVICE_CFLAGS) -DRANVIER_DOUBLE -c -o $@ $<
$(BUILD)/libnn_double.a: $(call double_obj,$(double_sources))
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/tests/test_gradients: $(call double_obj,tests/unit/test_gradients.c) $(BUILD)/libnn_double.a $(call lib,models)
	$(TEST_LINK) $(BLAS_LIBS)
-include $(shell find $(BUILD)/obj-double -name '*.d' 2>/dev/null)
