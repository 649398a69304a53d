#!/bin/sh
# SPDX-License-Identifier: MIT
# For tests/vm/harness.t: takes the kernel down.
echo "ok 1 - before"
echo c >/proc/sysrq-trigger
