#!/bin/sh
# SPDX-License-Identifier: MIT
# The main job inside the guest: a key, a model sealed, served, asked; for each provider in $SITS_TEST_PROVIDERS.
# The model is tiny.gguf, which tests/vm/manifest.toml has made: random weights, so its answers are nonsense, and the same each time.
. tests/vm/guest/lib.sh
. tests/vm/guest/serve.sh

dir=$(mktemp -d)
trap 'kill $daemon 2>/dev/null; rm -rf "$dir"' EXIT

run() {
	"$sits" run --run-dir "$dir/run" --provider "$provider" --quiet --ignore-eos "$@"
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

case " $SITS_TEST_PROVIDERS " in
*" kernel "*)
	# A key that no process but sits key install has seen.
	provider=kernel key=keyring:main-job
	check "a key is installed in the kernel" '"$sits" key install "file:$dir/key" $key'
	if start "$dir/tiny.sits"; then started=true; else started=false; fi
	check "sitsd starts with a key of type logon" '$started || { cat "$dir/sitsd.log"; exit 1; }'
	check "and answers" 'run -n 24 hello >"$dir/answer-logon"'
	$started && stop
	if start "$dir/bad.sits"; then started=true; stop; else started=false; wait "$daemon"; fi
	check "a changed model is not served" '! $started && cat "$dir/sitsd.log" && grep -q bad.sits "$dir/sitsd.log"'
	key=
	cp "$dir/tiny.sits" "$dir/other.sits"
	check "nor one under another key" \
		'"$sits" key new "file:$dir/new" && "$sits" rekey --key "file:$dir/key" --new-key "file:$dir/new" "$dir/other.sits"'
	key=keyring:main-job
	if start "$dir/other.sits"; then started=true; stop; else started=false; wait "$daemon"; fi
	check "which the kernel says" '! $started && cat "$dir/sitsd.log" && grep -q "wrong key" "$dir/sitsd.log"'
	key=

	# Left the choice: the client finds the daemon where it is.
	provider=user
	if start "$dir/tiny.sits"; then started=true; else started=false; fi
	provider=auto
	check "a client finds a daemon that is on sockets, though the module is there" \
		'$started && run -n 24 hello >"$dir/answer-auto"'
	$started && stop
	if start "$dir/tiny.sits"; then started=true; else started=false; fi
	check "a daemon with the choice takes the module" '$started && grep -q "provider kernel" "$dir/sitsd.log"'
	check "a client too" 'run --json -n 4 hello | tr -d " \n" | grep -q "\"provider\":\"kernel\""'
	check "a daemon that is stopped is told from none" \
		'kill -STOP $daemon; "$sits" info --run-dir "$dir/run" >"$dir/info"; kill -CONT $daemon; cat "$dir/info"
		 grep -q "daemon: none: the daemon is there, but does not answer" "$dir/info"'
	chmod 600 /dev/sits
	check "a client that may not open the device is told so" \
		'chmod 755 "$dir"
		 /usr/bin/setpriv --reuid 1000 --clear-groups "$sits" run --run-dir "$dir/run" hello >"$dir/out" 2>&1 && exit 1
		 cat "$dir/out"; grep -q "/dev/sits can.t be opened: Permission denied" "$dir/out"'
	chmod 666 /dev/sits
	$started && stop

	# Who may not make regions with the module goes without.
	chown -R 1000 "$dir"
	as="/usr/bin/setpriv --reuid 1000 --clear-groups --inh-caps=-all"
	if start "$dir/tiny.sits"; then started=true; else started=false; fi
	check "a daemon without rights to the module takes the user provider, and says so" \
		'cat "$dir/sitsd.log"; $started && grep -q "provider user" "$dir/sitsd.log" && grep -q "may not make regions" "$dir/sitsd.log"'
	check "and is found there" 'run -n 24 hello >"$dir/answer-less"'
	$started && stop
	provider=kernel
	if start "$dir/tiny.sits"; then started=true; stop; else started=false; wait "$daemon"; fi
	check "unless told to take the module" '! $started && cat "$dir/sitsd.log" && grep -q "may not make regions" "$dir/sitsd.log"'
	as=
	;;
esac
check "every provider gave the same answer" \
	'set -- "$dir"/answer-*; first=$1; for f in "$@"; do cmp "$first" "$f" || exit 1; done'
done_testing
