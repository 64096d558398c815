# Test binaries and scripts; each room lists its own in tests/mk/.
TESTS :=
SCRIPT_TESTS :=
TEST_LINK = @mkdir -p $(@D); echo link $@; $(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o %.a,$^) -lcmocka -ljansson -lm
include $(wildcard tests/mk/*.mk)
TEST_BINARIES = $(TESTS:%=$(BUILD)/tests/%)

# Runs every test, prints each one's count and, last, "N passed, N failed".
run-tests: $(BINARIES) $(TEST_BINARIES)
	@RANVIER_BIN=$(abspath $(BUILD)/bin) tests/run.sh $(TEST_BINARIES) $(SCRIPT_TESTS)
.PHONY: run-tests
