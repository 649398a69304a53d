#!/bin/bash
# SPDX-License-Identifier: MIT
# kmod_build.t - sits_sm4.ko builds against every installed set of kernel headers: without a warning, sparse-clean,
# without vector registers; and so does the rest of crypto/, which modules will share.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
count=0 failed=0

result()	# status, name, file with details
{
	count=$((count + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $count - $2"
	else
		failed=$((failed + 1))
		echo "not ok $count - $2"
		sed 's/^/# /' "$3"
	fi
}

skip()
{
	count=$((count + 1))
	echo "ok $count - $1 # SKIP $2"
}

no_match()	# extended regular expression, file: fails, with the lines, if any match
{
	! grep -E -i -- "$1" "$2" >"$tmp/matches"
}

# Also where there is no module to look at.
no_vectors()
{
	objdump -d "$1" >"$tmp/asm" 2>"$tmp/matches" && grep -q '<sits_sm4_crypt_bs64>:' "$tmp/asm" && no_match "$vectors" "$tmp/asm"
}

vectors='%[xyz]mm[0-9]|__(add|sub|mul|div|float|fix)[sdtx]f|__u?(div|mod)ti3'

# What a module of all of crypto/ is: proof that it is freestanding, and that no stack frame is too large.
check_crypto()
{
	local dir=$tmp/crypto-$2 f objs=
	mkdir -p "$dir/crypto"
	cp crypto/*.[ch] "$dir/crypto/"
	for f in crypto/*.c; do
		[ "$f" = crypto/sm4_bs128.c ] || objs+=" ${f%.c}.o"
	done
	cat >"$dir/Kbuild" <<-END
		ccflags-y := -iquote \$(src) -O3
		CHECKFLAGS += -I\$(src)
		obj-m += crypto_check.o
		crypto_check-y := stub.o$objs
	END
	printf '#include <linux/module.h>\nMODULE_LICENSE("GPL");\nMODULE_DESCRIPTION("check");\n' >"$dir/stub.c"
	env -u MAKEFLAGS -u MFLAGS make -C "$1" M="$dir" CONFIG_DEBUG_INFO_BTF_MODULES= C=$sparse modules >"$tmp/log" 2>&1
	result $? "$2: all of crypto/ builds" "$tmp/log"
	no_match 'warning|error' "$tmp/log"
	result $? "$2: all of crypto/ without warnings" "$tmp/matches"
	no_vectors "$dir/crypto_check.ko"
	result $? "$2: all of crypto/ without vector registers and helpers of libgcc" "$tmp/matches"
}

check_module()
{
	local ko=$tmp/kmod-$2/sits_sm4.ko
	make --no-print-directory kmod KDIR="$1" KMOD_O="$tmp" KMOD_EXTRA=C=$sparse >"$tmp/log" 2>&1
	result $? "$2: sits_sm4.ko builds" "$tmp/log"
	no_match 'warning|error' "$tmp/log"
	result $? "$2: without warnings$([ $sparse = 2 ] && echo ', also of sparse')" "$tmp/matches"
	no_vectors "$ko"
	result $? "$2: without vector registers and helpers of libgcc" "$tmp/matches"
	modinfo "$ko" >"$tmp/info" 2>&1
	grep -q "^vermagic: *$2 " "$tmp/info" && grep -q '^license: *GPL$' "$tmp/info" &&
		grep -q '^alias: *crypto-ctr(sm4)$' "$tmp/info" && grep -q '^alias: *crypto-sm4$' "$tmp/info"
	result $? "$2: names its kernel, licence and algorithms" "$tmp/info"
}

sparse=2
command -v sparse >/dev/null || sparse=0
declare -A seen=()
for kdir in /lib/modules/*/build /usr/src/linux-headers-*; do
	kdir=$(readlink -f "$kdir")
	[ -e "$kdir/include/generated/utsrelease.h" ] || continue
	release=$(sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' "$kdir/include/generated/utsrelease.h")
	[ -z "${seen[$release]:-}" ] || continue
	seen[$release]=1
	check_module "$kdir" "$release"
	check_crypto "$kdir" "$release"
done
for series in 6.1 6.12; do
	[[ " ${!seen[*]}" == *" $series."* ]] || skip "sits_sm4.ko for Linux $series" "no headers of Linux $series installed"
done
[ $sparse = 2 ] || skip "sparse" "sparse is not installed"
echo "1..$count"
exit $((failed != 0))
