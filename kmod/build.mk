# SPDX-License-Identifier: GPL-2.0
# Kernel modules: make kmod [KDIR=/lib/modules/VERSION/build]. Kbuild puts objects beside sources, where userspace's are not
# to be, so it is given a copy of what it needs: $(KMOD_O)/kmod-VERSION.
KDIR ?= /lib/modules/$(shell uname -r)/build
KMOD_O ?= build

# The kernel's own choice of compiler holds, not CC or O of this build: hence no MAKEFLAGS.
KMOD_SRCS := Kbuild $(wildcard crypto/*.[ch] kmod/*.[ch] include/uapi/linux/*.h)
# No BTF: it needs pahole and the kernel's vmlinux, which headers come without.
KMOD_ARGS = $(if $(V),V=1) CONFIG_DEBUG_INFO_BTF_MODULES= $(KMOD_EXTRA)

.PHONY: kmod
kmod:
	@test -e "$(KDIR)/Makefile" || { \
		echo "kmod: no kernel headers at $(KDIR): install them (Debian: linux-headers-amd64) or pass KDIR=" >&2; exit 1; }
	$(Q)version=$$(sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' "$(KDIR)/include/generated/utsrelease.h") && \
	dir=$$(realpath -m "$(KMOD_O)")/kmod-$$version && \
	for f in $(KMOD_SRCS); do \
		mkdir -p "$$dir/$$(dirname $$f)" && { cmp -s $$f "$$dir/$$f" || cp $$f "$$dir/$$f"; } || exit 1; \
	done && \
	env -u MAKEFLAGS -u MFLAGS make --no-print-directory -C "$(KDIR)" M="$$dir" $(KMOD_ARGS) modules && \
	echo "  KMOD  $$dir/sits_sm4.ko $$dir/sits.ko"
