#!/bin/bash
# SPDX-License-Identifier: MIT
# Every fuzz target: its seeds and some 20,000 executions. `make fuzz` runs them long.
set -uo pipefail
cd "$(dirname "$0")/../.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo 'int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return p && n > 1u << 30; }' >"$tmp/probe.c"
if ! command -v clang >/dev/null; then
	echo "1..0 # SKIP clang is not installed"
	exit 0
fi
if ! clang -fsanitize=fuzzer,address -o "$tmp/probe" "$tmp/probe.c" 2>/dev/null; then
	echo "1..0 # SKIP clang has no libFuzzer here"
	exit 0
fi

# Beside the build that is tested, so that both can be removed together.
dir=$(dirname "${BUILD:-build/gcc}")/fuzz
if ! make --no-print-directory -j"$(nproc)" fuzz-programs FUZZ_O="$dir" >"$tmp/log" 2>&1; then
	echo "1..1"
	echo "not ok 1 - the fuzz targets build"
	tail -40 "$tmp/log" | sed 's/^/# /'
	exit 1
fi
BUILD_FUZZ=$dir tests/fuzz/run --runs 20000
