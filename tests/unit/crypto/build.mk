# SPDX-License-Identifier: MIT
# What takes too long for `make test`:
#
#   make check-crypto-long [CASES=10000000]   random messages to SM4 on every core against OpenSSL and libgcrypt, on all
#                                             processors; goes on where it was stopped
#   make check-crypto-time [SAMPLES=200000]   is the time that SM4 takes the same for all keys and texts?
CASES ?= 10000000
SAMPLES ?= 200000
CRYPTO_LONG_O ?= build/crypto-long

$(O)/tests/unit/crypto/sm4_time: $(O)/tests/unit/crypto/sm4_time.o $(TEST_LIBS)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcrypto -lgcrypt $(LIB_LIBS) -lm

.SECONDARY: $(O)/tests/unit/crypto/sm4_time.o
.PHONY: check-crypto-long check-crypto-time
unit-tests: $(O)/tests/unit/crypto/sm4_time

check-crypto-long: $(O)/tests/unit/crypto/sm4_diff_test
	@tests/unit/crypto/run_long --cases $(CASES) --keep $(CRYPTO_LONG_O) $<

check-crypto-time: $(O)/tests/unit/crypto/sm4_time
	@$< $(SAMPLES)
