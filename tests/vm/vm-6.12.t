#!/bin/bash
# SPDX-License-Identifier: MIT
# The guest's tests on the newest kernel that Debian 12 offers.
# timeout: 3600
# side by side
cd "$(dirname "$0")/../.." && exec tests/vm/run --kernel 6.12 --may-skip --patience 3
