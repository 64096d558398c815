TESTS += test_models
$(BUILD)/tests/test_models: $(call obj,tests/unit/test_models.c) $(call lib,models base)
	$(TEST_LINK)

TESTS += test_program
$(BUILD)/tests/test_program: $(call obj,tests/unit/test_program.c) $(call lib,models base)
	$(TEST_LINK)

TESTS += test_fp16
# The conversions of runtime/base/fp16.c once more, as on a processor that has none, under other names.
$(BUILD)/obj/tests/fp16_portable.o: runtime/base/fp16.c runtime/base/fp16.h
	@mkdir -p $(@D)
	$(call say,cc,$<) $(CC) $(ALL_CFLAGS) -DFP16_PORTABLE $(foreach f,from_float to_float from_floats to_floats add,-Dfp16_$(f)=portable_$(f) -Dbf16_$(f)=portable_bf16_$(f)) -c -o $@ $<
$(BUILD)/tests/test_fp16: $(call obj,tests/unit/test_fp16.c) $(BUILD)/obj/tests/fp16_portable.o $(call lib,models base)
	$(TEST_LINK)

TESTS += test_overlap
$(BUILD)/tests/test_overlap: $(call obj,tests/unit/test_overlap.c) $(call lib,models base)
	$(TEST_LINK)

TESTS += test_shards
$(BUILD)/tests/test_shards: $(call obj,tests/unit/test_shards.c) $(call lib,models base)
	$(TEST_LINK)

# Products in a format of their own, and gradients in fp32.
TESTS += test_quantize
$(BUILD)/tests/test_quantize: $(call obj,tests/unit/test_quantize.c) $(call lib,models base)
	$(TEST_LINK)
