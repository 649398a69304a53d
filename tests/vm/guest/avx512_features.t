#!/bin/sh
# SPDX-License-Identifier: MIT
# The guest has what it is there for: the instructions, and a kernel that saves their registers (it lists no AVX-512 otherwise).
. tests/vm/guest/lib.sh

for flag in avx2 avx512f avx512bw avx512dq avx512vl avx512vbmi avx512_vnni gfni vaes vpclmulqdq; do
	check "the processor has $flag" "grep -q '^flags.* $flag\( \|\$\)' /proc/cpuinfo"
done
done_testing
