#!/bin/sh
# SPDX-License-Identifier: MIT
# The main job inside the guest: a key, a model sealed, served, asked; for each provider in $SITS_TEST_PROVIDERS.
# The model is tiny.gguf, which tests/vm/manifest.toml has made: random weights, so its answers are nonsense, and the same each time.
. tests/vm/guest/lib.sh

dir=$(mktemp -d)
trap 'kill $daemon 2>/dev/null; rm -rf "$dir"' EXIT
sits=$BUILD/sits
daemon=

run() {
	"$sits" run --run-dir "$dir/run" --provider "$provider" --quiet --ignore-eos "$@"
}

# Start sitsd and wait for its line of readiness, or for its end.
start() {
	cat >"$dir/sitsd.yaml" <<YAML
provider: $provider
run_dir: "$dir/run"
state_dir: "$dir/state"
model:
  path: "$1"
  key: "file:$dir/key"
memory:
  require_locked: false
YAML
	mkfifo "$dir/ready"
	"$BUILD/sitsd" --config "$dir/sitsd.yaml" --ready-fd 8 8>"$dir/ready" >"$dir/sitsd.log" 2>&1 &
	daemon=$!
	read -r line <"$dir/ready"
	rm "$dir/ready"
	[ "$line" = READY ]
}

stop() {
	kill -TERM "$daemon" && wait "$daemon"
}

check "a key is made" '"$sits" key new "file:$dir/key"'
check "a model is sealed" \
	'"$sits" seal --key "file:$dir/key" --model-id tiny --model-version 3 tiny.gguf "$dir/tiny.sits"'
check "what was sealed verifies" '"$sits" verify --key "file:$dir/key" "$dir/tiny.sits"'
check "a copy with a few bytes changed does not" \
	'cp "$dir/tiny.sits" "$dir/bad.sits" &&
	 printf changed | dd of="$dir/bad.sits" bs=1 seek=40000 conv=notrunc && ! cmp "$dir/tiny.sits" "$dir/bad.sits" &&
	 ! "$sits" verify --key "file:$dir/key" "$dir/bad.sits"'

for provider in ${SITS_TEST_PROVIDERS:-user}; do
	if start "$dir/tiny.sits"; then started=true; else started=false; fi
	check "sitsd starts ($provider)" '$started || { cat "$dir/sitsd.log"; exit 1; }'
	check "sits info says so ($provider)" \
		'"$sits" info --json --run-dir "$dir/run" --provider $provider | tr -d " \n" >"$dir/info"; cat "$dir/info"
		 grep -q "\"provider\":\"$provider\"" "$dir/info" && grep -q "\"state\":\"serving\"" "$dir/info" &&
		 grep -q "\"id\":\"tiny\"" "$dir/info"'
	check "sits run answers with as many tokens as asked for ($provider)" \
		'run --json -n 24 hello >"$dir/json"; cat "$dir/json"
		 tr -d " \n" <"$dir/json" | grep -q "\"completion_tokens\":24\b"'
	check "and streams text ($provider)" 'run -n 24 hello >"$dir/answer" && [ -s "$dir/answer" ]'
	check "eight clients at once get that same text ($provider)" \
		'for i in 1 2 3 4 5 6 7 8; do run -n 24 hello >"$dir/answer.$i" & eval "pid$i=$!"; done
		 for i in 1 2 3 4 5 6 7 8; do eval "wait \$pid$i" && cmp "$dir/answer" "$dir/answer.$i" || exit 1; done'
	if stop; then stopped=true; else stopped=false; fi
	check "sitsd ends well when told to ($provider)" '$stopped || { cat "$dir/sitsd.log"; exit 1; }'
	check "nothing is left to ask ($provider)" '! run -n 1 hello'
	if start "$dir/bad.sits"; then started=true; stop; else started=false; wait "$daemon"; fi
	check "a changed model is not served ($provider)" '! $started && cat "$dir/sitsd.log" && grep -q bad.sits "$dir/sitsd.log"'
	mv "$dir/answer" "$dir/answer-$provider"
done
check "every provider gave the same answer" \
	'set -- "$dir"/answer-*; first=$1; for f in "$@"; do cmp "$first" "$f" || exit 1; done'
done_testing
