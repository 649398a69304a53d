#!/bin/sh
# SPDX-License-Identifier: MIT
# For tests/vm/harness.t: passes, and leaves a process behind that holds its output open.
sleep 1000 &
echo "ok 1 - first"
echo "ok 2 - second # SKIP for a reason"
echo "1..2"
