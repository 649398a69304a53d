#!/bin/sh
# SPDX-License-Identifier: MIT
# The main job with the real model: sealed, loaded and served by each provider in $SITS_TEST_PROVIDERS, asked the same.
. tests/vm/guest/lib.sh
. tests/vm/guest/serve.sh

[ -s real.gguf ] || { echo "1..0 # SKIP the real model could not be fetched"; exit 0; }
dir=$(mktemp -d)
trap 'kill $daemon 2>/dev/null; rm -rf "$dir"' EXIT

run() {
	"$sits" run --run-dir "$dir/run" --provider "$provider" --quiet --temp 0 -n 8 "What is the capital of France?"
}

check "a key is made" '"$sits" key new "file:$dir/key"'
check "the model is sealed" '"$sits" seal --key "file:$dir/key" --model-id real real.gguf "$dir/real.sits"'
for provider in ${SITS_TEST_PROVIDERS:-user}; do
	if start "$dir/real.sits"; then started=true; else started=false; fi
	check "sitsd serves it ($provider)" '$started || { cat "$dir/sitsd.log"; exit 1; }'
	check "by that provider" 'cat "$dir/sitsd.log"; grep -q "provider $provider" "$dir/sitsd.log"'
	check "it answers" 'run >"$dir/answer-$provider"; cat "$dir/answer-$provider"; grep -q "capital of France is Paris" "$dir/answer-$provider"'
	if stop; then ended=true; else ended=false; fi
	check "sitsd ends well" '$ended || { cat "$dir/sitsd.log"; exit 1; }'
done
check "every provider gave the same answer" \
	'set -- "$dir"/answer-*; first=$1; for f in "$@"; do cmp "$first" "$f" || exit 1; done'
done_testing
