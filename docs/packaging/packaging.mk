# Man pages and completions, make install and uninstall (docs/install.md).
#   make install PREFIX=/usr/local [DESTDIR=/to/pack/from]
# Folders can be named one by one, as packagers do: BINDIR LIBDIR LIBEXECDIR DATADIR MANDIR BASHDIR ZSHDIR INCLUDEDIR.
VERSION := $(shell sed -n 's/^.define RANVIER_VERSION "\(.*\)"/\1/p' runtime/base/version.h)
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
LIBEXECDIR ?= $(PREFIX)/libexec
DATADIR    ?= $(PREFIX)/share
MANDIR     ?= $(DATADIR)/man
BASHDIR    ?= $(DATADIR)/bash-completion/completions
ZSHDIR     ?= $(DATADIR)/zsh/site-functions
INCLUDEDIR ?= $(PREFIX)/include

# The files that programs look for (runtime/base/file.h).
DATA_FOLDERS := models/presets runtime/plan/frameworks sim/platforms sim/platforms/collectives sim/machines sim/tables \
                calibrate/profiles calibrate/devices plots
DATA_FILES    = $(wildcard $(foreach e,json gp csv,$(DATA_FOLDERS:%=%/*.$(e))))

# What the programs say of their options, as man pages and completions; a tool of the build.
MANUAL := $(BUILD)/share/man/man1/ranvier.1
$(BUILD)/tools/manual: $(call obj,$(wildcard runtime/manual/*.c)) $(call lib,models base)
	$(LINK) -ljansson -lm
$(MANUAL): $(BUILD)/tools/manual $(BINARIES) $(DATA_FILES)
	$(if $(V),,@printf '  %-6s%s\n' manual $(BUILD)/share;) rm -rf $(BUILD)/share && $< $(abspath $(BUILD)/bin/ranvier) $(BUILD)/share
manual: $(MANUAL)
run-tests: $(if $(SAN),,$(MANUAL))

install: all manual
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBEXECDIR)/ranvier $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(BASHDIR) $(DESTDIR)$(ZSHDIR)
	install $(BUILD)/bin/ranvier $(DESTDIR)$(BINDIR)
	install $(filter-out %/ranvier,$(BINARIES)) $(PLUGINS) $(DESTDIR)$(LIBEXECDIR)/ranvier
	for file in $(DATA_FILES); do install -D -m 644 $$file $(DESTDIR)$(DATADIR)/ranvier/$$file || exit 1; done
	install -m 644 $(BUILD)/share/man/man1/*.1 $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(BUILD)/share/bash-completion/completions/ranvier $(DESTDIR)$(BASHDIR)
	install -m 644 $(BUILD)/share/zsh/site-functions/_ranvier $(DESTDIR)$(ZSHDIR)

uninstall:
	rm -rf $(DESTDIR)$(BINDIR)/ranvier $(DESTDIR)$(LIBEXECDIR)/ranvier $(DESTDIR)$(DATADIR)/ranvier $(DESTDIR)$(BASHDIR)/ranvier \
		$(DESTDIR)$(ZSHDIR)/_ranvier $(DESTDIR)$(MANDIR)/man1/ranvier.1 $(DESTDIR)$(MANDIR)/man1/ranvier-*.1

.PHONY: manual install uninstall
