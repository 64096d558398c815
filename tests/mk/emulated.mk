# The CUDA device compiled for an emulated CUDA (tests/emulated), as a plugin that runs on the CPU; and what goes over NCCL,
# for an emulated one, in the same file (RANVIER_NET_NCCL), since they share the emulated memory; so is a library of attention
# (RANVIER_ATTENTION_CUDNN).
EMULATED := $(BUILD)/emulated
EMULATED_PLUGIN := $(EMULATED)/device_cuda.so
emulated_includes := -Itests/emulated -I.
# Accesses of kernels are checked: by the emulation itself, or, SAN=1, by AddressSanitizer.
emulated_checks := $(if $(SAN),-DEMULATED_SAN,-fsanitize=kernel-address$(comma)alignment -fno-sanitize-recover=alignment \
                   --param asan-instrumentation-with-call-threshold=0 --param asan-stack=0 --param asan-globals=0)
# Optimised no further, kernels with their checks run a tenth slower and are compiled in half the time; with line tables and no more
# of what debuggers read, in a fifth less.
emulated_kernel_opt = $(if $(SAN),$(OPT),-O1 -g1)
EMULATED_CXXFLAGS = -std=c++17 $(emulated_includes) -fPIC -fno-math-errno -fno-strict-aliasing -pthread -MMD -MP
emulated_cuda := $(patsubst %,$(EMULATED)/%.o,$(wildcard runtime/device/cuda/*.cu))
emulated_host := $(patsubst %.c,$(EMULATED)/%.o,$(wildcard runtime/device/cuda/*.c))
emulated_attention := $(EMULATED)/tests/emulated/attention.o
emulated_itself := $(filter-out $(emulated_attention),$(patsubst %.cpp,$(EMULATED)/%.o,$(filter-out $(if $(SAN),%/instrument.cpp),$(wildcard tests/emulated/*.cpp))))

$(EMULATED)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,c++,$<) $(CXX) $(emulated_kernel_opt) $(EMULATED_CXXFLAGS) $(emulated_checks) -Wall -Werror -Wno-unknown-pragmas -x c++ -c -o $@ $<
$(EMULATED)/%.o: %.cpp
	@mkdir -p $(@D)
	$(call say,c++,$<) $(CXX) $(OPT) $(EMULATED_CXXFLAGS) -Wall -Wextra -Werror -c -o $@ $<
$(EMULATED)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$<) $(CC) -Itests/emulated $(ALL_CFLAGS) -fPIC -c -o $@ $<

emulated_link = $(if $(V),,@)mkdir -p $(@D); $(if $(V),,printf '  %-6s%s\n' link $@;) $(CXX) $(LDFLAGS_ALL) -o $@
$(EMULATED_PLUGIN): $(emulated_cuda) $(emulated_host) $(emulated_itself) $(emulated_attention) $(EMULATED)/runtime/net/nccl/nccl.o $(call obj,runtime/device/host.c) $(call lib,models base)
	$(emulated_link) -shared -Wl,-Bsymbolic $^ -lboost_context -ljansson -lm -ldl
-include $(shell find $(EMULATED) -name '*.d' 2>/dev/null)

# The emulation's own tests: kernels that are right and kernels that are not.
# test_ptx: ptx.cuh's equivalents of tensor cores, for GPUs that have none.
TESTS += test_emulated test_ptx
$(BUILD)/tests/test_emulated $(BUILD)/tests/test_ptx: $(BUILD)/tests/%: $(EMULATED)/tests/unit/%.cu.o $(emulated_itself)
	$(emulated_link) $^ -lcmocka -lboost_context -lm -ldl

# The host's half of all-reduces by NCCL, against functions of CUDA and NCCL that take note of their calls.
TESTS += test_nccl
$(BUILD)/tests/test_nccl: $(addprefix $(EMULATED)/,tests/unit/test_nccl.o runtime/net/nccl/nccl.o runtime/device/cuda/lane.o) \
                $(call lib,models base)
	$(TEST_LINK)

# The CUDA device's host side, and the gates before its timed kernels, linked with the emulated CUDA.
TESTS += test_cuda_host test_gate
$(BUILD)/tests/test_cuda_host $(BUILD)/tests/test_gate: $(BUILD)/tests/%: $(EMULATED)/tests/unit/%.o $(call obj,tests/unit/launches.c) $(emulated_cuda) $(emulated_host) \
                $(emulated_itself) $(call lib,device models base)
	$(emulated_link) $^ -lcmocka -lboost_context -ljansson -lm -ldl

# Refusals, limits, failures and graphs of `train --device cuda`.
SCRIPT_TESTS += tests/cli/device.py
# What it trains: the CPU device's losses; what it calls in the loop.
# Minutes under the sanitizers, where device.py trains on the same device.
SCRIPT_TESTS += $(if $(SAN),,tests/cli/cuda_emulated.py)
run-tests: $(EMULATED_PLUGIN)

# Of every kernel with the CPU device, and of what device.h promises: on the emulated CUDA, or, make test-gpu, a GPU.
# Not under the sanitizers: the emulation checks each access of a kernel in every build, and test_kernels has those of the CPU device.
TESTS += $(if $(SAN),,test_conformance)
$(BUILD)/tests/test_conformance: $(call obj,tests/unit/test_conformance.c tests/unit/launches.c) $(call lib,device models base) | $(EMULATED_PLUGIN)
	$(TEST_LINK)
