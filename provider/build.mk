# SPDX-License-Identifier: MIT
# The OpenSSL 3 provider module: headers of OpenSSL to build it, nothing of it to link. Left out where there are none.
PROVIDER_OBJS := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard provider/*.c)))
PROVIDER_MODULE := $(O)/ossl-modules/sits.so
HAVE_OPENSSL3 := $(shell $(CC) -E -include openssl/core_dispatch.h -x c /dev/null >/dev/null 2>&1 && echo y)
# Where the system's libcrypto looks for modules; an installation of its own, for some user, keeps to its prefix.
OSSL_MODULESDIR = $(or $(if $(filter /usr /usr/local,$(PREFIX)),$(shell pkg-config --variable=modulesdir libcrypto 2>/dev/null)),\
	$(LIBDIR)/ossl-modules)

# A sanitizer's symbols come from the program that loads it.
$(PROVIDER_MODULE): $(PROVIDER_OBJS) $(CRYPTO_OBJS) provider/provider.map
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -shared -Wl,--version-script=provider/provider.map \
		$(if $(SAN),,-Wl,-z,defs) -o $@ $(filter %.o,$^)

-include $(PROVIDER_OBJS:.o=.d)

.PHONY: provider install-provider
provider: $(PROVIDER_MODULE)

ifeq ($(HAVE_OPENSSL3),y)
PROGRAMS += $(PROVIDER_MODULE)
install: install-provider
endif

install-provider: $(PROVIDER_MODULE)
	install -D -m 0644 $(PROVIDER_MODULE) $(DESTDIR)$(OSSL_MODULESDIR)/sits.so
