# SPDX-License-Identifier: GPL-2.0
# Kernel modules: make kmod [KDIR=/lib/modules/VERSION/build]. Kbuild puts objects beside sources, where userspace's are not
# to be, so it is given a copy of what it needs: $(KMOD_O)/kmod-VERSION. make install-kmod puts them where modprobe finds
# them, make install-dkms the sources where DKMS does; both honour DESTDIR.
KDIR ?= /lib/modules/$(shell uname -r)/build
KMOD_O ?= build

# The kernel's own choice of compiler holds, not CC or O of this build: hence no MAKEFLAGS.
KMOD_SRCS := Kbuild $(wildcard crypto/*.[ch] crypto/x86/*.[chS] kmod/*.[ch] include/uapi/linux/*.h)
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

# Of another kernel, or into DESTDIR, depmod is for whoever installs them there.
.PHONY: install-kmod
install-kmod: kmod
	$(Q)version=$$(sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' "$(KDIR)/include/generated/utsrelease.h") && \
	dir=$$(realpath -m "$(KMOD_O)")/kmod-$$version && to=$(DESTDIR)/lib/modules/$$version/updates && \
	install -d "$$to" && \
	for m in sits_sm4 sits; do \
		install -m 0644 "$$dir/$$m.ko" "$$to/" && strip --strip-debug "$$to/$$m.ko" || exit 1; \
	done && \
	{ [ -n "$(DESTDIR)" ] || [ $$version != "$$(uname -r)" ] || PATH=$$PATH:/sbin:/usr/sbin depmod $$version; } && \
	echo "  INSTALL  $$to/sits_sm4.ko $$to/sits.ko"

DKMS_DIR = $(DESTDIR)/usr/src/sits-$(VERSION)

.PHONY: install-dkms
install-dkms:
	$(Q)rm -rf "$(DKMS_DIR)"
	$(Q)for f in $(KMOD_SRCS); do install -D -m 0644 $$f "$(DKMS_DIR)/$$f" || exit 1; done
	$(Q)sed -e 's|@VERSION@|$(VERSION)|g' packaging/dkms.conf.in >"$(DKMS_DIR)/dkms.conf" && chmod 0644 "$(DKMS_DIR)/dkms.conf"
	@echo "  INSTALL  $(DKMS_DIR)"

# What goes with the modules; systemd and udev read these folders below /usr and /usr/local alike.
.PHONY: install-device
install-device:
	install -D -m 0644 packaging/60-sits.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d/60-sits.rules
	install -D -m 0644 packaging/sits.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/sits.conf
	install -D -m 0644 packaging/modprobe.conf $(DESTDIR)$(PREFIX)/share/sits/modprobe.conf
	install -D -m 0644 include/uapi/linux/sits.h $(DESTDIR)$(PREFIX)/include/linux/sits.h
