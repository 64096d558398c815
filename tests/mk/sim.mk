TESTS += test_platform test_collective test_collective_table test_agenda test_memo test_interval test_price
$(BUILD)/tests/test_agenda: $(call obj,tests/unit/test_agenda.c) $(call lib,base)
	$(TEST_LINK)
$(BUILD)/tests/test_memo: $(call obj,tests/unit/test_memo.c) $(call lib,base)
	$(TEST_LINK)
$(BUILD)/tests/test_platform: $(call obj,tests/unit/test_platform.c) $(call lib,sim engine core profile models base)
	$(TEST_LINK) $(SIMGRID_LIBS)
$(BUILD)/tests/test_interval: $(call obj,tests/unit/test_interval.c) $(call lib,sim engine core profile models base)
	$(TEST_LINK) $(SIMGRID_LIBS)
$(BUILD)/tests/test_collective_table: $(call obj,tests/unit/test_collective_table.c) $(call lib,sim base)
	$(TEST_LINK)
$(BUILD)/tests/test_collective: $(call obj,tests/unit/test_collective.c) $(call lib,sim engine core profile models base)
	$(TEST_LINK) $(SIMGRID_LIBS)
SCRIPT_TESTS += tests/cli/price.py tests/cli/profiles.py tests/cli/machines.py tests/cli/platforms.sh tests/cli/simulate.sh tests/cli/sweep.sh tests/cli/plan.py tests/cli/replay.py tests/cli/checkpoints.py tests/cli/fold.py tests/cli/grid.py tests/cli/zero.py tests/cli/overlap.py
$(BUILD)/tests/test_price: $(call obj,tests/unit/test_price.c) $(call lib,sim engine core profile models base)
	$(TEST_LINK) $(SIMGRID_LIBS)
TESTS += test_paper_batch test_space
$(BUILD)/tests/test_space: $(call obj,tests/unit/test_space.c) $(call lib,sim engine core profile models base)
	$(TEST_LINK) $(SIMGRID_LIBS)
$(BUILD)/tests/test_paper_batch: $(call obj,tests/unit/test_paper_batch.c tests/paper/plans.c) $(call lib,sim engine core profile models base)
	$(TEST_LINK) $(SIMGRID_LIBS)
SCRIPT_TESTS += tests/cli/frameworks.py
