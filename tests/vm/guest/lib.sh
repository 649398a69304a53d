# SPDX-License-Identifier: MIT
# What the guest's shell tests share: TAP, and looking at the kernel. Sourced from the top of the tree.
nr=0 failed=0

# check NAME CONDITION: a condition in shell words, run in a shell of its own; its output is shown if it fails.
check() {
	nr=$((nr + 1))
	if (eval "$2") >/tmp/check.log 2>&1; then
		echo "ok $nr - $1"
	else
		failed=$((failed + 1))
		sed 's/^/# /' /tmp/check.log
		echo "not ok $nr - $1"
	fi
}

done_testing() {
	echo "1..$nr"
	[ "$failed" = 0 ]
	exit
}

loaded() {
	grep -q "^$1 " /proc/modules
}

# Take a module out. The kernel's own threads may hold it for a moment after a self-test or the last close.
unload() {
	for _ in $(seq 300); do
		rmmod "$1" && return 0
		loaded "$1" || return 1
		sleep 0.1
	done
	return 1
}

# "NAME DRIVER SELFTEST" of every algorithm of the kernel, without placeholders for those that are being tested (proc_crypto.h).
algs() {
	awk '{ v[$1] = $3 } NF == 0 { if (v["type"] != "larval") print v["name"], v["driver"], v["selftest"]; delete v }' /proc/crypto
}
