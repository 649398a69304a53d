# SPDX-License-Identifier: MIT
# Compute kernels. A file under x86/ gets the flags of the instruction set in its name, alone; the
# one that detects them (cpu.c) gets none, so that it runs anywhere.
KERNEL_X86 := $(findstring x86_64,$(shell $(CC) -dumpmachine))
KERNEL_SRCS := $(wildcard kernels/*.c kernels/ref/*.c $(if $(KERNEL_X86),kernels/x86/*.c))
KERNEL_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(KERNEL_SRCS)))

KERNEL_DEFS := $(if $(KERNEL_X86),-DSITS_KERNELS_X86) $(if $(SAN),-DSITS_KERNELS_PLAIN)

$(O)/kernels/%.o: CFLAGS := $(if $(SAN),-O1,-O3) -g -ffp-contract=off -fno-math-errno
$(O)/kernels/%.o: OBJ_CFLAGS = $(KERNEL_DEFS)
$(O)/kernels/x86/%_avx2.o: OBJ_CFLAGS = $(KERNEL_DEFS) -mavx2 -mfma -mf16c -mbmi2
$(O)/kernels/x86/%_avx512.o: OBJ_CFLAGS = $(KERNEL_DEFS) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni \
	-mavx2 -mfma -mf16c -mbmi2

$(O)/kernels/x86/%_avx512bf16.o: OBJ_CFLAGS = $(KERNEL_DEFS) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 \
	-mavx2 -mfma -mf16c -mbmi2

$(O)/libkernels.a: $(KERNEL_OBJS)
PROGRAMS += $(O)/libkernels.a

# The public C ABI (include/sits/dcu.h): its functions are visible, and libsits-kernels.map lists them.
KERNEL_SONAME := libsits-kernels.so.$(firstword $(subst ., ,$(VERSION)))

$(O)/libsits-kernels.so.$(VERSION): $(KERNEL_OBJS) kernels/libsits-kernels.map
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -shared -Wl,-soname,$(KERNEL_SONAME) \
		-Wl,--version-script=kernels/libsits-kernels.map -Wl,--no-undefined-version \
		$(if $(SAN),,-Wl,-z,defs) -o $@ $(filter %.o,$^) -lm

$(O)/libsits-kernels.so $(O)/$(KERNEL_SONAME): $(O)/libsits-kernels.so.$(VERSION)
	$(Q)ln -sf $(notdir $<) $@

PROGRAMS += $(O)/libsits-kernels.so $(O)/$(KERNEL_SONAME)

.PHONY: install-kernels
install-kernels: $(O)/libsits-kernels.so.$(VERSION)
	install -D -m 0755 $< $(DESTDIR)$(LIBDIR)/libsits-kernels.so.$(VERSION)
	ln -sf libsits-kernels.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(KERNEL_SONAME)
	ln -sf $(KERNEL_SONAME) $(DESTDIR)$(LIBDIR)/libsits-kernels.so
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
		packaging/libsits-kernels.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/libsits-kernels.pc
