# Man pages and completions, the library, make install and uninstall (docs/install.md).
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
                calibrate/profiles calibrate/devices plots plots/html
DATA_FILES    = $(wildcard $(foreach e,json gp csv css js,$(DATA_FOLDERS:%=%/*.$(e))))

# What the programs say of their options, as man pages and completions; a tool of the build.
MANUAL := $(BUILD)/share/man/man1/ranvier.1
$(BUILD)/tools/manual: $(call obj,$(wildcard runtime/manual/*.c)) $(call lib,models base)
	$(LINK) -ljansson -lm
$(MANUAL): $(BUILD)/tools/manual $(BINARIES) $(DATA_FILES)
	$(if $(V),,@printf '  %-6s%s\n' manual $(BUILD)/share;) rm -rf $(BUILD)/share && $< $(abspath $(BUILD)/bin/ranvier) $(BUILD)/share
manual: $(MANUAL)
# The same as a page of docs/, which tests/cli/manual.py holds to it.
reference: $(MANUAL)
	cp $(BUILD)/share/reference.md docs/reference.md
run-tests: $(if $(SAN),,$(MANUAL))

# libranvier: predictions on paper, of objects of their own (position-independent, without what knows SimGrid). It shows its own
# five functions alone (sim/library/ranvier.map), the static one too.
LIBRARY_ABI := 0
LIBRARY     := $(BUILD)/lib/libranvier.so.$(VERSION) $(BUILD)/lib/libranvier.a
library     := $(base) $(models) $(core) $(engine) $(launch) $(profile) $(wildcard sim/platform/*.c sim/collective/*.c) \
               $(addprefix sim/world/,copies.c costs.c interval.c machine.c crowd.c fold.c named_machine.c paper_batch.c tensor.c)
LIBRARY_LIBS := $(GSL_LIBS) $(LAUNCH_LIBS) -ljansson -ldl -lm
$(BUILD)/obj-library/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,"$< (library)") $(CC) $(ALL_CFLAGS) -fPIC -fno-semantic-interposition -c -o $@ $<
$(BUILD)/obj-library/all.a: $(library:%.c=$(BUILD)/obj-library/%.o)
	@rm -f $@
	$(call say,ar,$@) ar rcs $@ $^
$(BUILD)/lib/libranvier.so.$(VERSION): $(BUILD)/obj-library/sim/library/library.o $(BUILD)/obj-library/all.a sim/library/ranvier.map
	@mkdir -p $(@D)
	$(call say,link,$@) $(CC) -shared $(LDFLAGS_ALL) -Wl,-z,defs -Wl,-soname,libranvier.so.$(LIBRARY_ABI) \
		-Wl,--version-script=sim/library/ranvier.map -o $@ $(filter %.o %.a,$^) $(LIBRARY_LIBS)
	@ln -sf $(@F) $(@D)/libranvier.so.$(LIBRARY_ABI)
	@ln -sf libranvier.so.$(LIBRARY_ABI) $(@D)/libranvier.so
$(BUILD)/lib/libranvier.a: $(BUILD)/obj-library/sim/library/library.o $(BUILD)/obj-library/all.a
	@mkdir -p $(@D)
	$(call say,ar,$@) rm -f $@ && $(CC) -r -nostdlib -o $(BUILD)/obj-library/ranvier.o $^ && \
		$(OBJCOPY) -w --keep-global-symbol='ranvier_*' $(BUILD)/obj-library/ranvier.o && ar rcs $@ $(BUILD)/obj-library/ranvier.o
library: $(LIBRARY)
run-tests: $(if $(SAN),,$(LIBRARY))
-include $(shell find $(BUILD)/obj-library -name '*.d' 2>/dev/null)

# Paths below PREFIX are written so that pkg-config can move them (--define-prefix).
define PKGCONFIG
prefix=$(PREFIX)
libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))
includedir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))

Name: ranvier
Description: Predictions of training runs of language models
Version: $(VERSION)
Requires.private: gsl, jansson, yaml-0.1
Libs: -L$${libdir} -lranvier
Libs.private: -ldl -lm
Cflags: -I$${includedir}
endef
export PKGCONFIG

install: all manual library
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBEXECDIR)/ranvier $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(BASHDIR) $(DESTDIR)$(ZSHDIR)
	install $(BUILD)/bin/ranvier $(DESTDIR)$(BINDIR)
	install $(filter-out %/ranvier,$(BINARIES)) $(PLUGINS) $(DESTDIR)$(LIBEXECDIR)/ranvier
	for file in $(DATA_FILES); do install -D -m 644 $$file $(DESTDIR)$(DATADIR)/ranvier/$$file || exit 1; done
	install -m 644 $(BUILD)/share/man/man1/*.1 $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(BUILD)/share/bash-completion/completions/ranvier $(DESTDIR)$(BASHDIR)
	install -m 644 $(BUILD)/share/zsh/site-functions/_ranvier $(DESTDIR)$(ZSHDIR)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(LIBRARY) $(DESTDIR)$(LIBDIR)
	ln -sf libranvier.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libranvier.so.$(LIBRARY_ABI)
	ln -sf libranvier.so.$(LIBRARY_ABI) $(DESTDIR)$(LIBDIR)/libranvier.so
	install -m 644 sim/library/ranvier.h $(DESTDIR)$(INCLUDEDIR)
	printf '%s\n' "$$PKGCONFIG" >$(DESTDIR)$(LIBDIR)/pkgconfig/ranvier.pc

uninstall:
	rm -rf $(DESTDIR)$(LIBDIR)/libranvier.* $(DESTDIR)$(LIBDIR)/pkgconfig/ranvier.pc $(DESTDIR)$(INCLUDEDIR)/ranvier.h
	rm -rf $(DESTDIR)$(BINDIR)/ranvier $(DESTDIR)$(LIBEXECDIR)/ranvier $(DESTDIR)$(DATADIR)/ranvier $(DESTDIR)$(BASHDIR)/ranvier \
		$(DESTDIR)$(ZSHDIR)/_ranvier $(DESTDIR)$(MANDIR)/man1/ranvier.1 $(DESTDIR)$(MANDIR)/man1/ranvier-*.1

# Debian packages of programs, library and header in build/deb/packages; needs debhelper. lintian looks them over where it is.
deb: all manual library
	docs/packaging/deb.sh $(CURDIR) $(abspath $(BUILD)/deb) $(VERSION)
	if command -v lintian >/dev/null; then lintian --allow-root --fail-on error,warning $(BUILD)/deb/packages/*.deb; fi
test-deb: deb
	tests/deb.sh $(BUILD)/deb

.PHONY: manual reference library install uninstall deb test-deb
