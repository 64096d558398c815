# The CPU device's kernels once for each kind of processor; which one runs is chosen when the device is opened.
# A variant is one object, and of its symbols only cpu_run_VARIANT is seen outside.
#   scalar    the reference: nothing vectorised, products in plain loops
#   baseline  what every processor of the compiler's target has; on x86 without AVX
#   avx2      AVX2, FMA, F16C
#   avx512    AVX-512 F, VL, BW, DQ besides
OBJCOPY ?= objcopy
on_x86  := $(filter x86_64%,$(shell $(CC) -dumpmachine))
CPU_VARIANTS := scalar baseline $(if $(on_x86),avx2 avx512)

cpu_products := runtime/device/cpu/gemm.c runtime/device/cpu/gemm_loops.c
cpu_kernels  := runtime/device/cpu/run.c $(wildcard runtime/device/cpu/kernels/*.c runtime/device/cpu/mixed/*.c)
device       := $(filter-out $(cpu_kernels) $(cpu_products),$(device))
cpu_sources   = $(cpu_kernels) runtime/base/fp16.c $(if $(filter scalar,$(1)),runtime/device/cpu/gemm_loops.c,runtime/device/cpu/gemm.c)

# ARCH is for all else; a variant has its own.
x86_64 := $(if $(on_x86),-march=x86-64 -mtune=generic)
cpu_flags_scalar   := $(x86_64) $(if $(SAN),,-O2) -fno-tree-vectorize -fno-tree-slp-vectorize -ffp-contract=off -DFP16_PORTABLE -DCPU_SCALAR
cpu_flags_baseline := $(x86_64) -DFP16_PORTABLE
cpu_flags_avx2     := $(x86_64) -mavx2 -mfma -mf16c
cpu_flags_avx512   := $(cpu_flags_avx2) -mavx512f -mavx512vl -mavx512bw -mavx512dq -mprefer-vector-width=512

# The object of a variant in a folder of objects, and the rules for it: folder, variant, flags of the folder.
cpu_variant = $(1)-$(2)/cpu_kernels_$(2).o
define cpu_variant_rules
$(1)-$(2)/%.o: %.c
	@mkdir -p $$(@D)
	$$(call say,cc,"$$< ($(2))") $$(CC) $$(ALL_CFLAGS) $$(DEVICE_CFLAGS) -fno-lto $$(cpu_flags_$(2)) -Dcpu_run=cpu_run_$(2) $(3) -c -o $$@ $$<
$(call cpu_variant,$(1),$(2)): $(patsubst %.c,$(1)-$(2)/%.o,$(call cpu_sources,$(2)))
	$$(call say,join,$$@) $$(CC) -r -nostdlib -o $$@ $$^
	$$(if $$(V),,@)$$(OBJCOPY) --keep-global-symbol=cpu_run_$(2) $$@
endef
$(foreach v,$(CPU_VARIANTS),$(eval $(call cpu_variant_rules,$(BUILD)/obj,$(v),)))
cpu_variants = $(foreach v,$(CPU_VARIANTS),$(call cpu_variant,$(1),$(v)))
