#!/bin/bash
# SPDX-License-Identifier: MIT
# What scripts/run, behind `make run`, says of arguments that it can't use: in its own words, and before anything is made.
set -uo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A copy works in a tree of its own: build/run may be in use.
install -D scripts/run "$dir/scripts/run"
mkdir "$dir/empty"

n=0 failed=0
# refused NAME WORDS VARIABLE=VALUE...
refused() {
	local name=$1 words=$2 out rc bad=
	shift 2
	out=$(env -u MODEL -u PROMPT -u PROVIDER -u RUN_ARGS BUILD=/nonexistent "$@" "$dir/scripts/run" 2>&1) && rc=0 || rc=$?
	[ $rc = 1 ] || bad="exit $rc"
	[[ ${out##*$'\n'} = "run: "*"$words"* ]] || bad+=" words"
	[ -z "$(ls "$dir/build/run")" ] || bad+=" left"
	n=$((n + 1))
	[ -z "$bad" ] || { failed=1; printf 'not '; }
	echo "ok $n - $name"
	[ -z "$bad" ] || sed 's/^/# /' <<<"$bad: $out"
}

refused "a provider that there is not" "auto, kernel or user" PROVIDER=foo
refused "arguments with a quoting error" "quoting error" RUN_ARGS='-n "4'
refused "a model that is not there" "no such file" MODEL="$dir/none.gguf"
refused "a directory without a file" "is empty" MODEL="$dir/empty/"

echo "1..$n"
exit $failed
