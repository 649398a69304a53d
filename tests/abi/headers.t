#!/bin/bash
# SPDX-License-Identifier: MIT
# Every public header compiles alone, in C and in C++, without a warning, and says what it needs itself.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
headers=(include/sits/*.h include/uapi/linux/*.h)
n=0
tap=()

check() {	# name command...
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/out" 2>&1; then
		tap+=("ok $n - $name")
	else
		tap+=("not ok $n - $name" "$(sed 's/^/# /' "$tmp/out")")
	fi
}

# Included twice, so that a missing guard shows.
compile() {	# compiler language standard header
	printf '#include "%s"\n#include "%s"\n' "$4" "$4" >"$tmp/alone.$2"
	"$1" -x "$2" "-std=$3" -Wall -Wextra -Wpedantic -Werror -Iinclude -Iinclude/uapi -fsyntax-only "$tmp/alone.$2"
}

for h in "${headers[@]}"; do
	[ -e "$h" ] || continue
	rel=${h#include/}
	for cc in gcc clang; do
		command -v $cc >/dev/null || continue
		check "$rel alone, $cc, C11" compile $cc c c11 "$rel"
	done
	for cxx in g++ clang++; do
		command -v $cxx >/dev/null || continue
		check "$rel alone, $cxx, C++11" compile $cxx c++ c++11 "$rel"
	done
done
check "there are headers" test "$n" -ge 5
echo "1..$n"
printf '%s\n' "${tap[@]}"
