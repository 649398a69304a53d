#!/bin/sh
# SPDX-License-Identifier: MIT
# sits_sm4.ko comes and goes, and leaves nothing behind; which variants it offers, and what it does where one is broken.
. tests/vm/guest/lib.sh

# Lines of the kernel's log since the last call.
seen=0
news() {
	total=$(dmesg | wc -l)
	dmesg | tail -n +$((seen + 1))
	seen=$total
}

# The variants that are registered, the best first.
variants() {
	algs | awk '$1 == "gcm(sm4)" { sub(/.*-sits-/, "", $2); print $2 }'
}

# Since 6.12 the kernel's self-tests run after the registration; those who ask for a cipher wait for them.
tested() {
	for _ in $(seq 1500); do
		algs | grep sits | grep -qv "passed$" || return 0
		usleep 20000
	done
	return 1
}

# Nothing of ours is registered any more. A self-test that the module's going came before takes its placeholder along a moment later.
gone() {
	for _ in $(seq 300); do
		grep -q sm4-sits /proc/crypto || return 0
		sleep 0.1
	done
	grep sm4-sits /proc/crypto
	return 1
}

# all_there VARIANT...: these, each with six algorithms that passed their self-test, and no other.
all_there() {
	tested || return 1
	[ "$(variants | wc -l)" = $# ] || return 1
	for v; do
		[ "$(algs | grep -c "sm4-sits-$v passed\$")" = 6 ] || return 1
	done
	[ "$(algs | grep -c sits)" = $(($# * 6)) ]
}

# A variant of this machine that is not the portable one, the best.
modprobe sits_sm4
best=$(variants | grep -v portable | head -n 1)
all=$(variants)
unload sits_sm4

check "is not loaded at first" '! loaded sits_sm4 && ! grep -q sm4-sits /proc/crypto'
check "loads" 'modprobe sits_sm4 && loaded sits_sm4'
check "registers six algorithms of each variant, all self-tested: $(echo $all)" 'all_there $all'
check "has the portable variant" 'variants | grep -qx portable'
check "says which is the best" 'dmesg | grep "sits_sm4: best variant: ${best:-portable}, of "'
check "says what it is" \
	'modinfo sits_sm4 | grep -q "^license:.*GPL" && modinfo sits_sm4 | grep -q "^description:.*SM4"'
check "a second load is refused" '! insmod "$(modinfo -n sits_sm4)" 2>/dev/null && loaded sits_sm4'
for name in "crypto-ctr(sm4)" "crypto-gcm(sm4)" "crypto-xts(sm4)" crypto-gcm-sm4-sits-portable crypto-sm4-sits-portable; do
	check "is loaded on request of $name" 'unload sits_sm4 && modprobe "$name" && loaded sits_sm4'
done
check "goes" 'unload sits_sm4 && ! loaded sits_sm4 && [ ! -e /sys/module/sits_sm4 ]'
check "leaves no cipher behind" 'gone'

# ------------------------------------------------------------------ one variant alone
for v in $all; do
	check "offers $v alone where told to" 'modprobe sits_sm4 variant=$v && all_there $v && unload sits_sm4'
done
news >/dev/null
check "a variant that there is not is refused, with the names of those that there are" \
	'! modprobe sits_sm4 variant=fast && news | grep "variant=fast: no such variant; there are portable, " && ! loaded sits_sm4'
for v in aesni-avx2 gfni-avx2 gfni-avx512; do
	echo "$all" | grep -qx $v && continue
	news >/dev/null
	check "$v alone, which this machine does not have, is refused" \
		'! modprobe sits_sm4 variant=$v && news | grep "sits_sm4: $v: cannot be used here" && ! loaded sits_sm4'
	check "nothing is left of that" 'gone'
done

# ------------------------------------------------------------------ broken variants
# The assembly of a variant: each function of it in turn does nothing.
breakable() {
	modprobe sits_sm4 && tested || return 1
	awk -v p="^sits_sm4_$(echo "$1" | tr - _)_" '$3 ~ p && $4 == "[sits_sm4]" && $2 == "t" { print $3 }' /proc/kallsyms | sort -u
	unload sits_sm4
}

# broken VARIANT FUNCTION REST...: with this function broken the variant is left out, and the rest is there.
broken() {
	broken=$1 f=$2
	shift 2
	news >/dev/null
	modprobe sits_test_skip function=sits_sm4:$f || return 1
	modprobe sits_sm4 2>/dev/null
	[ "$(cat /sys/module/sits_test_skip/parameters/hits)" -gt 0 ] || echo "$f was not called"
	[ "$(cat /sys/module/sits_test_skip/parameters/hits)" -gt 0 ] && all_there "$@" &&
		news | grep "sits_sm4: $broken: wrong answers"
	ret=$?
	{ ! loaded sits_sm4 || unload sits_sm4; } && unload sits_test_skip && return $ret
}

if [ -n "$best" ] && grep -qw register_kprobe /proc/kallsyms; then
	rest=$(echo "$all" | grep -vx "$best")
	functions=$(breakable "$best")
	for f in $functions; do
		check "without $f, $best is left out" 'broken "$best" $f $rest'
	done
	check "that were the functions of a variant" '[ "$(echo "$functions" | wc -w)" -ge 6 ]'
	check "a broken one alone is refused" \
		'modprobe sits_test_skip function=sits_sm4:$(echo "$functions" | head -n 1) &&
		! modprobe sits_sm4 variant=$best 2>/dev/null && ! loaded sits_sm4 && unload sits_test_skip && gone'
	check "unharmed, all are there again" 'modprobe sits_sm4 && all_there $all && unload sits_sm4'
else
	nr=$((nr + 1))
	echo "ok $nr - broken variants # SKIP this kernel has no probes, or this machine one variant only"
fi

# ------------------------------------------------------------------ many times
check "comes and goes five times" \
	'for i in $(seq 5); do modprobe sits_sm4 && unload sits_sm4 || exit 1; done; gone'
check "comes and goes with what made use of it" \
	'for i in 1 2; do
		modprobe sits_sm4 && "$BUILD/tests/vm/guest/sm4_afalg_test" >/tmp/afalg.log || { cat /tmp/afalg.log; exit 1; }
		unload sits_sm4 || exit 1
	done; gone'
done_testing
