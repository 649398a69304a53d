#!/bin/bash
# SPDX-License-Identifier: MIT
# The guest's tests on Debian 12's kernel.
# timeout: 3600
# side by side
cd "$(dirname "$0")/../.." && exec tests/vm/run --kernel 6.1 --may-skip --patience 3
