# Every reader against inputs that nobody checked (docs/fuzzing.md). With libFuzzer, in a build of its own:
# make fuzz [FUZZ_SECONDS=60] [FUZZ_RUNS=1000000] [FUZZ_TARGETS="model trace"] [SHARE=1/4]; and as a test, what was found before.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(shell sed '/^#/d; s/|.*//' tests/fuzz/targets)
FUZZ_ENTRANCES := tests/fuzz/libfuzzer.c tests/fuzz/replay.c
fuzzed := $(filter-out $(FUZZ_ENTRANCES),$(wildcard tests/fuzz/*.c)) $(wildcard runtime/checkpoint/*.c) runtime/data/data.c \
	calibrate/import.c runtime/device/cuda/choices.c
fuzzed_libs := plot kineto sim launch engine core fit profile models base
# Figures are not drawn (tests/fuzz/figures.c), and not all words are compared (fuzz.c).
FUZZ_LIBS := -Wl,--wrap=figure_draw,--wrap=page_figure,--wrap=nearest_offer $(SIMGRID_LIBS) $(LAUNCH_LIBS) -ljansson -lz -lm

SCRIPT_TESTS += tests/fuzz/replay.sh
run-tests: $(BUILD)/tests/fuzz_replay
$(BUILD)/tests/fuzz_replay: $(call obj,tests/fuzz/replay.c $(fuzzed)) $(call lib,$(fuzzed_libs))
	$(LINK) $(FUZZ_LIBS)
$(BUILD)/tests/fuzz: $(call obj,tests/fuzz/libfuzzer.c $(fuzzed)) $(call lib,$(fuzzed_libs))
	$(LINK) -fsanitize=fuzzer $(FUZZ_LIBS)

# clang has no name for what runtime/base/fp16.c asks a processor, and warnings of its own: those that count are gcc's.
FUZZ_CLANG ?= clang
FUZZ_FLAGS := -O2 -w -fsanitize=fuzzer-no-link -fsanitize-coverage-ignorelist=tests/fuzz/uncovered
fuzz:
	@tests/deps.sh fuzz
	@tests/fuzz/run.sh check $(FUZZ_CLANG)
	@$(MAKE) --no-print-directory $(JOBS) BUILD=build/fuzz CC='$(FUZZ_CLANG)' CXX='$(subst clang,clang++,$(FUZZ_CLANG))' SAN=1 CUDA=0 \
		CFLAGS='$(FUZZ_FLAGS) -DFP16_PORTABLE' CXXFLAGS='$(FUZZ_FLAGS) -fno-sanitize=vptr,function' build/fuzz/tests/fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_RUNS=$(FUZZ_RUNS) tests/fuzz/run.sh build/fuzz $(call share,$(FUZZ_TARGETS))
.PHONY: fuzz
