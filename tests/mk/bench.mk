# Not a test: see make bench.
$(BUILD)/tests/polling: $(call obj,tests/bench/polling.c) $(call lib,net device models)
	$(LINK) $(MPI_LIBS) $(BLAS_LIBS) -ljansson -lm
