# SPDX-License-Identifier: MIT
# Compute kernels. A file under x86/ gets the flags of the instruction set in its name, alone.
KERNEL_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(wildcard kernels/*.c kernels/ref/*.c kernels/x86/*.c)))

$(O)/kernels/ref/%.o $(O)/kernels/x86/%.o: CFLAGS := -O3 -g -ffp-contract=off -fno-math-errno
$(O)/kernels/x86/%_avx2.o: OBJ_CFLAGS := -mavx2 -mfma -mf16c -mbmi2
$(O)/kernels/x86/%_avx512.o: OBJ_CFLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c -mbmi2

$(O)/libkernels.a: $(KERNEL_OBJS)
PROGRAMS += $(O)/libkernels.a
