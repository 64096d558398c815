SCRIPT_TESTS += tests/cli/plot.sh tests/cli/page.py tests/cli/profiled.py tests/cli/answers.py

# Rewrites what users see in tests/golden; read the difference before you commit it.
golden: $(BINARIES) $(BUILD)/tests/test_report $(BUILD)/tests/test_capacity
	GOLDEN=1 $(BUILD)/tests/test_report >/dev/null
	GOLDEN=1 $(BUILD)/tests/test_capacity >/dev/null
	GOLDEN=1 RANVIER_BIN=$(abspath $(BUILD)/bin) tests/cli/plot.sh >/dev/null
	GOLDEN=1 RANVIER_BIN=$(abspath $(BUILD)/bin) tests/cli/bad_input.py >/dev/null
	git diff --stat -- tests/golden
.PHONY: golden
