#!/bin/bash
# SPDX-License-Identifier: MIT
# side by side
# kmod_build.t - sits.ko and sits_sm4.ko build against every installed set of kernel headers, and against Linux 6.1 and 6.12
# in any case: without a warning of gcc (W=1) or sparse (C=2), without vector registers where they are not meant; modinfo tells
# all it should; the vector cores are those that userspace is tested with. All of crypto/ builds as well, as compiled code.
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

# Module, a function of it: also where there is no module to look at. Assembly of the vector cores is meant to have them, and
# saves the registers before; nothing that is compiled is.
no_vectors()
{
	objdump -d "$1" >"$tmp/all" 2>"$tmp/matches" && grep -q "<$2>:" "$tmp/all" || return 1
	awk '/^[0-9a-f]+ <.*>:$/ { skip = $2 ~ /^<sits_sm4_.*(aesni|gfni)/ } !skip' "$tmp/all" >"$tmp/asm"
	no_match "$vectors" "$tmp/asm"
}

vectors='%[xyz]mm[0-9]|__(add|sub|mul|div|float|fix)[sdtx]f|__u?(div|mod)ti3'

# What a module of all of crypto/ is: proof that it is freestanding, and that no stack frame is too large.
check_crypto()
{
	local dir=$tmp/crypto-$2 f objs=
	mkdir -p "$dir/crypto/x86"
	cp crypto/*.[ch] "$dir/crypto/"
	cp crypto/x86/*.[ch] "$dir/crypto/x86/"
	for f in crypto/*.c crypto/x86/cpu.c; do
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
	no_vectors "$dir/crypto_check.ko" sits_sm4_crypt_bs64
	result $? "$2: all of crypto/ without vector registers and helpers of libgcc" "$tmp/matches"
}

# Words on what modinfo lacks: module file, release, further fields that it must have as "field: text"
modinfo_lacks()
{
	local ko=$1 release=$2 field want
	shift 2
	modinfo "$ko" >"$tmp/info" 2>&1 || { cat "$tmp/info"; return; }
	for field in "vermagic: $release " "license: GPL\$" "version: $version\$" 'author: The SITS project$' 'description: .' "$@"; do
		want="^${field%%: *}: *${field#*: }"
		grep -q -- "$want" "$tmp/info" || echo "modinfo $(basename "$ko"): no line $want"
	done
	# "name:what it is (type)"
	modinfo -F parm "$ko" | grep -vE '^[a-z_]+:.{10,} \([a-z]+\)$' | sed 's/^/a parameter without a description: /'
}

# Parameters that the sources of sits.ko declare, one a line.
parameters()
{
	ls kmod/*.c | grep -v '^kmod/sm4_' | xargs cat | tr -d '\n' | grep -oE 'module_param(_named)?\([[:space:]]*[a-z_]+' | sed 's/.*[([:space:]]//' | sort
}

check_modules()
{
	local dir=$tmp/kmod-$2
	make --no-print-directory kmod KDIR="$1" KMOD_O="$tmp" KMOD_EXTRA="W=1 C=$sparse" >"$tmp/log" 2>&1
	result $? "$2: sits.ko and sits_sm4.ko build" "$tmp/log"
	no_match 'warning|error:' "$tmp/log"
	result $? "$2: without warnings, W=1$([ $sparse = 2 ] && echo ', also of sparse')" "$tmp/matches"
	no_vectors "$dir/sits_sm4.ko" sits_sm4_crypt_bs64
	result $? "$2: sits_sm4.ko without vector registers and helpers of libgcc" "$tmp/matches"
	if compgen -G "$objects" >/dev/null; then
		# shellcheck disable=SC2086 # a pattern
		tests/kmod_sm4_code.py "$dir/sits_sm4.ko" $objects >"$tmp/matches" 2>&1
		result $? "$2: its vector cores are, instruction by instruction, those of userspace: $(head -n 1 "$tmp/matches")" "$tmp/matches"
	else
		skip "$2: its vector cores are those of userspace" "no $objects: build them first, or this is no x86-64"
	fi
	no_vectors "$dir/sits.ko" sits_region_free
	result $? "$2: sits.ko likewise" "$tmp/matches"
	modinfo_lacks "$dir/sits_sm4.ko" "$2" 'alias: crypto-sm4$' 'alias: crypto-gcm(sm4)$' 'alias: crypto-xts(sm4)$' \
		'alias: crypto-ctr(sm4)$' 'alias: crypto-cbc(sm4)$' 'alias: crypto-ecb(sm4)$' 'alias: crypto-\*sm4-sits-\*$' \
		'parm: *variant:' >"$tmp/matches"
	[ ! -s "$tmp/matches" ]
	result $? "$2: modinfo of sits_sm4.ko" "$tmp/matches"
	{
		modinfo_lacks "$dir/sits.ko" "$2" 'import_ns: DMA_BUF$'
		# Loading weights takes gcm(sm4).
		[ ! -e kmod/weights.c ] || modinfo -F softdep "$dir/sits.ko" | grep -qx 'pre: sits_sm4' || echo "no softdep on sits_sm4"
		diff <(parameters) <(modinfo -F parm "$dir/sits.ko" | sed 's/:.*//' | sort)
	} >"$tmp/matches" 2>&1
	[ ! -s "$tmp/matches" ] && [ "$(parameters | wc -l)" -ge 3 ]
	result $? "$2: modinfo of sits.ko, with every parameter" "$tmp/matches"
}

objects="${BUILD:-build/gcc}/crypto/x86/*asm*.o"
sparse=2
command -v sparse >/dev/null || sparse=0
version=$(sed -n 's/^VERSION := //p' Makefile)
declare -A seen=()

check_headers()
{
	local kdir release
	kdir=$(readlink -f "$1")
	[ -e "$kdir/include/generated/utsrelease.h" ] || return
	release=$(sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' "$kdir/include/generated/utsrelease.h")
	[ -z "${seen[$release]:-}" ] || return
	seen[$release]=1
	check_modules "$kdir" "$release"
	check_crypto "$kdir" "$release"
}

for kdir in /lib/modules/*/build /usr/src/linux-headers-*; do
	check_headers "$kdir"
done
for series in 6.1 6.12; do
	[[ " ${!seen[*]}" != *" $series."* ]] || continue
	# As the tests in virtual machines do.
	if kdir=$(tests/vm/kernels.py $series 2>"$tmp/why"); then
		check_headers "$kdir"
	else
		skip "the modules for Linux $series" "no headers of it: $(tail -n 1 "$tmp/why")"
	fi
done
[ $sparse = 2 ] || skip "sparse" "sparse is not installed"
echo "1..$count"
exit $((failed != 0))
