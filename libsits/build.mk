# SPDX-License-Identifier: MIT
# libsits: static and shared. Its objects and those of crypto/.
LIB_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(wildcard libsits/*.c)))
LIB_LIBS := -luring -lkeyutils
LIB_SONAME := libsits.so.$(firstword $(subst ., ,$(VERSION)))
LIB_HEADERS := $(sort $(wildcard include/sits/*.h))
LIBDIR = $(PREFIX)/lib

# libsits.map alone says what is exported, so the objects hide nothing from it.
$(O)/libsits/%.o: OBJ_CFLAGS := -fvisibility=default

$(O)/libsits.a: $(LIB_OBJS) $(CRYPTO_OBJS)

# A sanitizer's symbols come from the program that is linked with the library.
$(O)/libsits.so.$(VERSION): $(LIB_OBJS) $(CRYPTO_OBJS) libsits/libsits.map
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -shared -Wl,-soname,$(LIB_SONAME) \
		-Wl,--version-script=libsits/libsits.map -Wl,--no-undefined-version \
		$(if $(SAN),,-Wl,-z,defs) -o $@ $(filter %.o,$^) $(LIB_LIBS)

$(O)/libsits.so $(O)/$(LIB_SONAME): $(O)/libsits.so.$(VERSION)
	$(Q)ln -sf $(notdir $<) $@

PROGRAMS += $(O)/libsits.a $(O)/libsits.so $(O)/$(LIB_SONAME)

.PHONY: install-libsits
install-libsits: install-kernels $(O)/libsits.a $(O)/libsits.so.$(VERSION)
	install -D -m 0644 $(O)/libsits.a $(DESTDIR)$(LIBDIR)/libsits.a
	install -D -m 0755 $(O)/libsits.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libsits.so.$(VERSION)
	ln -sf libsits.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(LIB_SONAME)
	ln -sf $(LIB_SONAME) $(DESTDIR)$(LIBDIR)/libsits.so
	install -d $(DESTDIR)$(PREFIX)/include/sits $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/share/man/man3
	install -m 0644 $(LIB_HEADERS) $(DESTDIR)$(PREFIX)/include/sits
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
		packaging/libsits.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/libsits.pc
	install -m 0644 $(sort $(wildcard man/*.3)) $(DESTDIR)$(PREFIX)/share/man/man3
	@# Every function that a page's NAME lists gets a page that points to it.
	$(Q)for page in man/*.3; do \
		base=$$(basename $$page .3); \
		for name in $$(sed -n '/^\.SH NAME/{n;s/ \\-.*//;s/,//g;p;q}' $$page); do \
			[ $$name = $$base ] || echo ".so man3/$$base.3" \
				>$(DESTDIR)$(PREFIX)/share/man/man3/$$name.3; \
		done; \
	done
