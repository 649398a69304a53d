#!/bin/sh
# SPDX-License-Identifier: MIT
# sits_sm4.ko comes and goes, and leaves nothing behind.
. tests/vm/guest/lib.sh

check "is not loaded at first" '! loaded sits_sm4 && ! grep -q sm4 /proc/crypto'
check "loads" 'modprobe sits_sm4 && loaded sits_sm4'
check "registers three ciphers, all self-tested" \
	'[ "$(algs | grep -c "sits passed")" = 3 ] && ! algs | grep sits | grep -v passed'
check "says what it is" \
	'modinfo sits_sm4 | grep -q "^license:.*GPL" && modinfo sits_sm4 | grep -q "^description:.*SM4"'
check "a second load is refused" '! insmod "$(modinfo -n sits_sm4)" 2>/dev/null && loaded sits_sm4'
check "is loaded on request by the name of a cipher" \
	'unload sits_sm4 && modprobe "crypto-ctr(sm4)" && loaded sits_sm4'
check "goes" 'unload sits_sm4 && ! loaded sits_sm4 && [ ! -e /sys/module/sits_sm4 ]'
check "leaves no cipher behind" '! grep sm4 /proc/crypto'
check "comes and goes thirty times" \
	'for i in $(seq 30); do modprobe sits_sm4 && unload sits_sm4 || exit 1; done; ! grep sm4 /proc/crypto'
check "comes and goes with gcm(sm4) made of it" \
	'for i in 1 2; do
		modprobe sits_sm4 && "$BUILD/tests/vm/guest/sm4_afalg_test" >/tmp/afalg.log || { cat /tmp/afalg.log; exit 1; }
		algs | grep -q "gcm_base(ctr-sm4-sits" && unload sits_sm4 || exit 1
	done; ! grep sm4 /proc/crypto'
done_testing
