TESTS += test_train_options
$(BUILD)/tests/test_train_options: $(call obj,tests/unit/test_train_options.c runtime/real/train_options.c runtime/real/hosts.c) \
                $(call lib,nn device launch engine core models base)
	$(TEST_LINK) $(LAUNCH_LIBS)
SCRIPT_TESTS += tests/cli/weights.py tests/cli/shards.py tests/cli/context.py tests/cli/allreduce.sh tests/cli/offload.py tests/cli/net_link.py tests/cli/resume.py tests/cli/restarts.py tests/cli/logical.py
# Under the sanitizers these take longer than all others; what they run, shards.py, zero.py and overlap.py run there, too.
SCRIPT_TESTS += $(if $(SAN),,tests/cli/equivalence.py tests/cli/experts.py tests/cli/pytorch.py tests/cli/transformers.py tests/cli/virtual_stages.py tests/cli/sharded_experts.py)
$(BUILD)/tests/allreduce: $(call obj,tests/unit/allreduce.c) $(call lib,net models base)
	$(TEST_LINK) $(MPI_LIBS)
run-tests: $(BUILD)/tests/allreduce
# Not a test: see make bench.
$(BUILD)/tests/offload: $(call obj,tests/bench/offload.c) $(call lib,real nn net device engine core models base)
	$(LINK) $(MPI_LIBS) $(BLAS_LIBS) -ljansson -lm
TESTS += test_collect
$(BUILD)/tests/test_collect: $(call obj,tests/unit/test_collect.c) $(call lib,real nn net device engine core models base)
	$(TEST_LINK) $(MPI_LIBS)
TESTS += test_kernel_times
$(BUILD)/tests/test_kernel_times: $(call obj,tests/unit/test_kernel_times.c runtime/real/kernel_times.c) \
                $(call lib,engine core models base)
	$(TEST_LINK)
SCRIPT_TESTS += tests/cli/kernels.py tests/cli/ranks.py
$(BUILD)/tests/refuse_calloc.so: tests/unit/refuse_calloc.c
	@mkdir -p $(@D)
	$(call say,cc,$<) $(CC) $(ALL_CFLAGS) -shared -fPIC -o $@ $<
run-tests: $(if $(SAN),,$(BUILD)/tests/refuse_calloc.so)

# What our own code allocates during a batch: its calls go through the test's.
TESTS += test_allocations
$(BUILD)/tests/test_allocations: $(call obj,tests/unit/test_allocations.c) $(call lib,real nn net device engine core models base)
	$(TEST_LINK) $(MPI_LIBS) $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc aligned_alloc mmap)
TESTS += test_staged
$(BUILD)/tests/test_staged: $(call obj,tests/unit/test_staged.c runtime/real/staged.c)
	$(TEST_LINK)
TESTS += test_mpirun_said
$(BUILD)/tests/test_mpirun_said: $(call obj,tests/unit/test_mpirun_said.c runtime/real/mpirun_said.c) $(call lib,base)
	$(TEST_LINK)
