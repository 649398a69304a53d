#!/bin/bash
# SPDX-License-Identifier: MIT
# A program outside the tree builds against what `make install-libsits` put down, by pkg-config, and runs.
set -u
BUILD=${BUILD:-build/gcc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/usr
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

if nm "$BUILD/libsits.a" 2>/dev/null | grep -q __asan_; then
	echo "1..0 # SKIP the library in $BUILD was built with a sanitizer"
	exit 0
fi
echo 1..16
n=0
check() {	# name command...
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' "$tmp/out"
	fi
}

cat >"$tmp/client.c" <<'EOF'
#include <sits/context.h>
#include <sits/infer.h>
#include <sits/queue.h>
#include <sits/region.h>
#include <sits/sealed.h>
#include <stdio.h>
#include <string.h>

static int lines;

static void count_line(void *arg, int severity, const char *line)
{
	(void)arg; (void)severity; (void)line;
	lines++;
}

int main(int argc, char **argv)
{
	struct sits_open_opts o = { 0 };
	struct sits_infer_builder *b;
	struct sits_channel *ch;
	struct sits_ctx *ctx;
	const void *bytes;
	size_t len;

	o.size = sizeof(o);
	o.log = count_line;
	o.run_dir = argv[argc - 1];
	if (sits_open(&o, &ctx) || sits_infer_builder_create(&b))
		return 1;
	if (sits_infer_builder_add(b, SITS_FIELD_PROMPT, "hi", 2) ||
	    sits_infer_builder_bytes(b, &bytes, &len) || len != 80)
		return 2;
	/* Nobody serves here: an error in words, no channel, no crash. */
	if (sits_channel_open(ctx, SITS_INFER_QUEUE, 0, &ch) >= 0 || !lines)
		return 3;
	sits_infer_builder_destroy(b);
	printf("%s\n", sits_provider_name(ctx));
	sits_close(ctx);
	return 0;
}
EOF

check "install" make -s O="$BUILD" PREFIX="$prefix" install-libsits
check "pkg-config knows it" pkg-config --exists --print-errors libsits
check "the version is the library's" test -e "$prefix/lib/libsits.so.$(pkg-config --modversion libsits)"
check "every header is there" diff -rq include/sits "$prefix/include/sits"
check "every function has a man page" sh -c "grep -o 'sits_[a-z_]*;' libsits/libsits.map | tr -d ';' | while read -r f; do test -e $prefix/share/man/man3/\$f.3 || { echo \$f; exit 1; }; done"
check "a shared client builds" sh -c "gcc -Wall -Werror -o $tmp/shared $tmp/client.c \$(pkg-config --cflags --libs libsits)"
check "it runs" env LD_LIBRARY_PATH="$prefix/lib" "$tmp/shared" "$tmp"
check "it needs the soname" sh -c "readelf -d $tmp/shared | grep -q 'libsits.so.0'"
check "a static client builds" sh -c "gcc -Wall -Werror -o $tmp/static $tmp/client.c \$(pkg-config --cflags libsits) $prefix/lib/libsits.a \$(pkg-config --libs --static libsits | sed 's/-lsits//')"
check "it runs too" "$tmp/static" "$tmp"
cat >"$tmp/kernels.c" <<'EOF2'
#include <sits/dcu.h>
#include <stdio.h>

int main(void)
{
	float q[2] = { 0, 0 }, v[2] = { 1, 3 }, o[2];

	dcu_flash_attn3_seed(1);
	return dcu_flash_attn3_forward(q, q, v, o, 1, 2, 1, 1, 0) || o[0] != 1 || o[1] != 2;
}
EOF2
check "pkg-config knows the kernels" pkg-config --exists --print-errors libsits-kernels
check "every kernel has a man page" sh -c "grep -o 'dcu_[a-z0-9_]*;' kernels/libsits-kernels.map | tr -d ';' | while read -r f; do test -e $prefix/share/man/man3/\$f.3 || { echo \$f; exit 1; }; done"
check "a client of the kernels builds" sh -c "gcc -Wall -Werror -o $tmp/kernels $tmp/kernels.c \$(pkg-config --cflags --libs libsits-kernels)"
check "it computes" env LD_LIBRARY_PATH="$prefix/lib" "$tmp/kernels"
check "the service is installed" make -s O="$BUILD" PREFIX="$prefix" install-service
check "its unit starts the daemon that is installed" grep -qx "ExecStart=$prefix/sbin/sitsd --config .*" "$prefix/lib/systemd/system/sitsd.service"
