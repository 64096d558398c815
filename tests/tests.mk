# Of a list of names all; with SHARE=2/3 the second, the fifth, the eighth ... of them, by their names.
share = $(if $(SHARE),$(or $(shell printf '%s\n' $(sort $(1)) | awk -v share=$(SHARE) 'BEGIN { if (split(share, of, "/") != 2 || of[1] < 1 || of[1] + 0 > of[2] + 0) exit } NR % of[2] == of[1] % of[2]'),$(error SHARE=$(SHARE): which one of how many, as 1/2, was expected)),$(1))

# Test binaries and scripts; each room lists its own in tests/mk/.
TESTS :=
SCRIPT_TESTS :=
# The programs' BLAS comes before GSL's, which has functions of the same names.
TEST_LINK = $(if $(V),,@)mkdir -p $(@D); $(if $(V),,printf '  %-6s%s\n' link $@;) $(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o %.a,$^) -lcmocka \
	$(if $(filter %/libdevice.a %/libnn_double.a,$^),$(DEVICE_LIBS)) $(GSL_LIBS) -ljansson -lm
include $(wildcard tests/mk/*.mk)
TEST_BINARIES = $(TESTS:%=$(BUILD)/tests/%)

# What these do is mostly done by ranks that wait for each other: beside other tests they take up to six times as long. The longest first.
RANKS_TESTS := $(patsubst %,tests/cli/%.py,zero shards context offload experts equivalence overlap resume restarts sharded_experts virtual_stages weights net_link logical)

ifneq ($(wildcard $(RANKS_TESTS)),$(RANKS_TESTS))
$(error a name in RANKS_TESTS is no test's)
endif

# These take minutes: they begin first, so that none is left over while a processor has nothing to do.
LONG_TESTS := $(BUILD)/tests/test_conformance $(BUILD)/tests/test_interleavings $(patsubst %,tests/cli/%,cuda_emulated.py commands.py bad_input.py pytorch.py calibrate.sh)

# SHARE=2/3: of the scripts, by their names, the second, the fifth, the eighth ... alone; of the programs all.
SCRIPTS_RUN = $(call share,$(SCRIPT_TESTS))

# Runs every test, prints each one's count and, last, "N passed, N failed".
run-tests: $(BINARIES) $(PLUGINS) $(TEST_BINARIES) $(BUILD)/tests/slices
	@RANVIER_BIN=$(abspath $(BUILD)/bin) $(BUILD)/tests/slices tests/run.sh $(filter $(LONG_TESTS),$(TEST_BINARIES) $(SCRIPTS_RUN)) \
		$(filter-out $(LONG_TESTS) $(RANKS_TESTS),$(TEST_BINARIES) $(SCRIPTS_RUN)) \
		--ranks $(filter $(RANKS_TESTS),$(SCRIPTS_RUN))
$(BUILD)/tests/slices: $(call obj,tests/slices.c)
	$(LINK)

# Every interleaving, also those that take minutes.
test-exhaustive: $(BUILD)/tests/test_interleavings
	@RANVIER_EXHAUSTIVE=1 tests/run.sh $<
.PHONY: run-tests test-exhaustive
