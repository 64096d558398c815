TESTS += test_kernels test_experts test_device test_workload test_optim test_gradients
$(BUILD)/tests/test_kernels $(BUILD)/tests/test_experts: $(BUILD)/tests/%: $(call obj,tests/unit/%.c tests/unit/launches.c) $(call lib,device models base)
	$(TEST_LINK)
$(BUILD)/tests/test_device: $(call obj,tests/unit/test_device.c) $(call lib,nn device models base)
	$(TEST_LINK)
$(BUILD)/tests/test_workload: $(call obj,tests/unit/test_workload.c) $(call lib,nn device models base)
	$(TEST_LINK)
$(BUILD)/tests/test_optim: $(call obj,tests/unit/test_optim.c) $(call lib,nn device models base)
	$(TEST_LINK) -Wl,--wrap=pthread_create

# Device, nn and optim once more in double precision, where finite differences can tell a wrong gradient.
double_sources := $(device) $(wildcard runtime/nn/*.c runtime/optim/*.c) runtime/data/data.c
double_obj = $(patsubst %.c,$(BUILD)/obj-double/%.o,$(1))
$(BUILD)/obj-double/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$<) $(CC) $(ALL_CFLAGS) $(DEVICE_CFLAGS) -DRANVIER_DOUBLE -c -o $@ $<
$(foreach v,$(CPU_VARIANTS),$(eval $(call cpu_variant_rules,$(BUILD)/obj-double,$(v),-DRANVIER_DOUBLE)))
$(BUILD)/libnn_double.a: $(call double_obj,$(double_sources)) $(call cpu_variants,$(BUILD)/obj-double)
	@rm -f $@
	$(call say,ar,$@) ar rcs $@ $^
$(BUILD)/tests/test_gradients: $(call double_obj,tests/unit/test_gradients.c tests/unit/launches.c) $(BUILD)/libnn_double.a $(call lib,models base)
	$(TEST_LINK)

# Which kernels a processor runs, that each kind trains the same, and what is in their objects.
TESTS += test_variants
$(BUILD)/tests/test_variants: $(call obj,tests/unit/test_variants.c) $(call lib,device models base)
	$(TEST_LINK)
SCRIPT_TESTS += tests/cli/variants.py

# Kernels on several threads.
TESTS += test_split
$(BUILD)/obj/tests/unit/test_split.o: EXTRA = $(BLAS_CFLAGS)
$(BUILD)/tests/test_split: $(call obj,tests/unit/test_split.c tests/unit/launches.c) $(call lib,device models base)
	$(TEST_LINK)
