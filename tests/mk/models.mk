TESTS += test_models
$(BUILD)/tests/test_models: $(call obj,tests/unit/test_models.c) $(call lib,models base)
	$(TEST_LINK)

TESTS += test_program
$(BUILD)/tests/test_program: $(call obj,tests/unit/test_program.c) $(call lib,models base)
	$(TEST_LINK)

TESTS += test_half
# The conversions of runtime/base/half.c once more, as on a processor that has none, under other names.
$(BUILD)/obj/tests/half_portable.o: runtime/base/half.c runtime/base/half.h
	@mkdir -p $(@D)
	$(call say,cc,$<) $(CC) $(ALL_CFLAGS) -DHALF_PORTABLE $(foreach f,from_float to_float from_floats to_floats add,-Dhalf_$(f)=portable_$(f) -Dbf16_$(f)=portable_bf16_$(f)) -c -o $@ $<
$(BUILD)/tests/test_half: $(call obj,tests/unit/test_half.c) $(BUILD)/obj/tests/half_portable.o $(call lib,models base)
	$(TEST_LINK)

TESTS += test_shards
$(BUILD)/tests/test_shards: $(call obj,tests/unit/test_shards.c) $(call lib,models base)
	$(TEST_LINK)
