# Not tests: see make bench. They are built with the tests, so that a change does not break them unseen.
BENCHES = collectives events experts mixed mpi_allreduce offload overhead polling ranking sgemm worlds
# Two of them are optimised across files, which takes half a minute: these are compiled with the tests, and linked by their target.
run-tests: $(if $(SAN),,$(patsubst %,$(BUILD)/tests/%,$(filter-out ranking worlds,$(BENCHES))) $(call obj,tests/bench/ranking.c tests/bench/worlds.c))
$(BUILD)/tests/polling: $(call obj,tests/bench/polling.c) $(call lib,net device models base)
	$(LINK) $(MPI_LIBS) $(BLAS_LIBS) -ljansson -lm
$(BUILD)/tests/mixed $(BUILD)/tests/experts: $(BUILD)/tests/%: $(call obj,tests/bench/%.c tests/unit/launches.c) $(call lib,device models base)
	$(LINK) $(BLAS_LIBS) -ljansson -lm
$(BUILD)/tests/collectives: $(call obj,tests/bench/collectives.c) $(call lib,sim engine core profile models base)
	$(LINK) $(SIMGRID_LIBS) -ljansson -lm
$(BUILD)/tests/mpi_allreduce: $(call obj,tests/bench/mpi_allreduce.c) $(call lib,net profile device models base)
	$(LINK) $(MPI_LIBS) $(BLAS_LIBS) -ljansson -ldl -lm $(GSL_LIBS)
$(BUILD)/tests/gpu: $(call obj,tests/bench/gpu.c) $(call lib,profile engine core device models base)
	$(LINK) $(DEVICE_LIBS) -ljansson -lm $(GSL_LIBS)
SCRIPT_TESTS += tests/cli/gpu.sh
run-tests: $(BUILD)/tests/gpu $(BUILD)/emulated/device_cuda.so
$(BUILD)/tests/events: $(call obj,tests/bench/events.c) $(call lib,paper engine core models base)
	$(LINK) -ljansson -lm
$(BUILD)/tests/overhead: $(call obj,tests/bench/overhead.c) $(call lib,real nn net device engine core models base)
	$(LINK) $(MPI_LIBS) $(DEVICE_LIBS) -ljansson -lm
$(BUILD)/obj/tests/bench/sgemm.o: EXTRA = $(BLAS_CFLAGS)
$(BUILD)/tests/sgemm: $(call obj,tests/bench/sgemm.c) $(call lib,models base)
	$(LINK) $(BLAS_LIBS) -ljansson -lm
$(BUILD)/tests/worlds: $(call obj,tests/bench/worlds.c tests/paper/plans.c) $(call lib,sim engine core profile models base)
	$(LINK) $(SIMGRID_LIBS) -ljansson -lm
$(BUILD)/tests/worlds $(BUILD)/tests/ranking: LTO_LINK = $(if $(LTO),-O3 -flto=2)
$(BUILD)/tests/ranking: $(call obj,tests/bench/ranking.c) $(call lib,sim engine core profile models base)
	$(LINK) $(SIMGRID_LIBS) -ljansson -lm
bench-plan: all
	python3 tests/bench/random_plans.py $(BUILD)/bin/ranvier
