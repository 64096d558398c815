# The CUDA device, a plugin beside the programs: host code by the C compiler, kernels by nvcc. Built where nvcc is found,
# but for sanitizer builds (CUDA reserves addresses that theirs are in; the emulated device is built with them instead).
# CUDA=0: not built. CUDA=1: an error if it cannot be. CUDA_ARCHS="80 90": compute capabilities to build kernels for; GPUs
# newer than the last one compile them when they are loaded.
CUDA ?= $(if $(SAN),0,auto)
ifeq ($(origin NVCC),undefined)
NVCC := $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
endif
PLUGINS :=

ifeq ($(CUDA)$(NVCC),1)
$(error CUDA=1, but there is no nvcc: install the CUDA toolkit, or say where it is with NVCC=/path/to/nvcc)
endif
ifneq ($(CUDA),0)
ifneq ($(NVCC),)

PLUGINS   := $(BUILD)/bin/device_cuda.so
ifeq ($(origin CUDA_HOME),undefined)
CUDA_HOME := $(abspath $(dir $(realpath $(shell command -v $(lastword $(NVCC)))))..)
endif
CUDA_LIB  := $(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib))
# Volta and Turing as far as the toolkit still knows them, Ampere, Hopper.
CUDA_KNOWN := $(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch))
CUDA_ARCHS ?= $(filter 70 75 80 90,$(CUDA_KNOWN))
CUDA_CODE  := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
              -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
NVCCFLAGS  ?=
ALL_NVCCFLAGS = -std=c++17 -I. -O3 -lineinfo $(CUDA_CODE) -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror,-fPIC \
                -MMD -MP $(NVCCFLAGS)

cuda_kernels := $(wildcard runtime/device/cuda/*.cu)
cuda_host    := $(wildcard runtime/device/cuda/*.c)
cuda_objects := $(cuda_kernels:%=$(BUILD)/obj/%.o) $(call obj,$(cuda_host))

# What the optimizer makes of a parameter must not depend on which of its paths the parameter's address takes, and the
# compiler contracts multiplications and additions differently from one to the next. All of it is bound by memory.
$(BUILD)/obj/runtime/device/cuda/optimizer.cu.o: FMAD = -fmad=false

# The assembler's report of registers, shared memory and spills stays beside the object: tests/cuda/resources.sh.
$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,nvcc,$<) $(NVCC) $(ALL_NVCCFLAGS) $(FMAD) -Xptxas -v -MF $(@:.o=.d) -c -o $@ $< 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; exit 1; }
$(BUILD)/obj/runtime/device/cuda/%.o: EXTRA = -fPIC -isystem $(CUDA_HOME)/include -DCUDA_LEAST_CAPABILITY=$(firstword $(CUDA_ARCHS))

# The runtime is linked in and cuBLASLt is found where the toolkit is; both look for the driver only when they are called,
# so that the plugin can say itself that there is none.
$(BUILD)/bin/device_cuda.so: $(cuda_objects) $(BUILD)/obj/runtime/device/host.o $(call lib,models base)
	@mkdir -p $(@D)
	$(call say,link,$@) $(CC) -shared $(LTO_LINK) -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-rpath,$(CUDA_LIB) $(LDFLAGS) -o $@ $^ \
		-L$(CUDA_LIB) -lcublasLt -lcudart_static -ljansson -ldl -lrt -lpthread -lstdc++ -lm

# Attention by cuDNN, a plugin of its own: built where CUDNN_FRONTEND names the folder of cudnn_frontend.h (NVIDIA's
# cudnn-frontend, headers alone) and cuDNN's headers are found. Libraries are looked for when it is asked for.
CUDNN_FRONTEND ?=
cudnn_header := $(firstword $(wildcard $(addsuffix /cudnn_graph.h,$(CUDA_HOME)/include /usr/include /usr/local/include)))
ifneq ($(CUDNN_FRONTEND),)
ifeq ($(and $(cudnn_header),$(wildcard $(CUDNN_FRONTEND)/cudnn_frontend.h)),)
$(error CUDNN_FRONTEND=$(CUDNN_FRONTEND), but cudnn_frontend.h is not there, or cuDNN's cudnn_graph.h not in $(CUDA_HOME)/include, /usr/include or /usr/local/include)
endif
PLUGINS += $(BUILD)/bin/attention_cudnn.so
$(BUILD)/obj/runtime/device/cuda/attention_cudnn.o: EXTRA = -fPIC -g0 -fvisibility=hidden \
	$(addprefix -isystem ,$(filter-out /usr/include /usr/local/include,$(CUDA_HOME)/include $(cudnn_header:/cudnn_graph.h=) $(CUDNN_FRONTEND:/=)))
$(BUILD)/bin/attention_cudnn.so: $(BUILD)/obj/runtime/device/cuda/attention_cudnn.o
	@mkdir -p $(@D)
	$(call say,link,$@) $(CXX) -shared $(LTO_LINK) -Wl,-z,defs -Wl,-rpath,$(CUDA_LIB) $(LDFLAGS) -o $@ $^ -ldl
endif

# All-reduces by NCCL, a plugin of its own: built where NCCL is found. NCCL=0: not built.
NCCL ?= auto
nccl_header  := $(firstword $(wildcard $(addsuffix /nccl.h,$(CUDA_HOME)/include /usr/include /usr/local/include)))
nccl_library := $(firstword $(wildcard $(addsuffix /libnccl.so,$(CUDA_LIB) /usr/lib/*-linux-gnu /usr/lib64 /usr/local/lib)))
ifneq ($(NCCL),0)
ifneq ($(and $(nccl_header),$(nccl_library)),)
PLUGINS += $(BUILD)/bin/net_nccl.so
$(BUILD)/obj/runtime/net/nccl/%.o: EXTRA = -fPIC -isystem $(CUDA_HOME)/include \
	$(addprefix -isystem ,$(filter-out /usr/include/ /usr/local/include/,$(dir $(nccl_header))))
$(BUILD)/bin/net_nccl.so: $(call obj,runtime/net/nccl/nccl.c runtime/device/cuda/lane.c) $(call lib,models base)
	@mkdir -p $(@D)
	$(call say,link,$@) $(CC) -shared $(LTO_LINK) -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-rpath,$(dir $(nccl_library)) $(LDFLAGS) -o $@ $^ \
		$(nccl_library) -L$(CUDA_LIB) -lcudart_static -ldl -lrt -lpthread
endif
endif

endif
endif
