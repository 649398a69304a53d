#!/bin/sh
# SPDX-License-Identifier: MIT
# A model of several files inside the guest: sealed as a directory, served, asked; for each provider in $SITS_TEST_PROVIDERS.
# It is that of qwen3.tar, which tests/vm/manifest.toml has made: as a directory and as a GGUF, of the same random weights. No row
# of this architecture is reordered in a GGUF, so both compute the same, bit for bit. tests/e2e/directory.t has more of the user
# provider.
. tests/vm/guest/lib.sh
. tests/vm/guest/serve.sh

dir=$(mktemp -d)
trap 'kill $daemon 2>/dev/null; rm -rf "$dir"' EXIT
tar -xf qwen3.tar -C "$dir"
key_opt="--key file:$dir/key"

answer() {
	"$sits" run --run-dir "$dir/run" --provider "$provider" --quiet --raw --temp 0 -n 12 --ignore-eos "what is it?"
}

# A number of the module's, or nothing where there is none.
counter() {
	cat "/sys/class/misc/sits/$1" 2>/dev/null
}

# serves MODEL NAME: its answer is $dir/answer-NAME; $regions: what the module held meanwhile.
serves() {
	name=$2
	if start "$1"; then started=true; else started=false; fi
	check "sitsd serves it ($name)" '$started || { cat "$dir/sitsd.log"; exit 1; }'
	check "by that provider ($name)" 'cat "$dir/sitsd.log"; grep -q "provider $provider" "$dir/sitsd.log"'
	check "it answers ($name)" 'answer >"$dir/answer-$name" && [ -s "$dir/answer-$name" ]'
	regions=$(counter regions)
	if $started && stop; then ended=true; else ended=false; fi
	check "sitsd ends well ($name)" '$ended || { cat "$dir/sitsd.log"; exit 1; }'
}

# refused MODEL WORDS WHAT: such a directory is not served, the log says why, and nothing of it stays in the module.
refused() {
	words=$2
	if start "$1"; then started=true; stop; else started=false; wait "$daemon"; fi
	check "$3 is not served ($provider)" '! $started && cat "$dir/sitsd.log" && grep -q "$words" "$dir/sitsd.log"'
	check "and nothing of it is kept ($provider)" 'counter regions; [ "$(counter regions)" = "$none" ]'
}

"$sits" key new "file:$dir/key" && "$sits" key new "file:$dir/new"
check "a directory is sealed" '"$sits" seal $key_opt --quiet --model-id m --model-version 4 "$dir/qwen3" "$dir/a"'
check "and what was sealed verifies" '"$sits" verify $key_opt "$dir/a"'
"$sits" seal $key_opt --quiet --model-id m --model-version 4 "$dir/qwen3.gguf" "$dir/gguf.sits"
"$sits" seal $key_opt --quiet --model-id m --model-version 4 "$dir/qwen3" "$dir/b"
cp -r "$dir/a" "$dir/mixed" && cp "$dir/b/config.json.sits" "$dir/mixed"
cp -r "$dir/a" "$dir/changed" && printf changed | dd of="$dir/changed/model.safetensors.sits" bs=1 seek=40000 conv=notrunc 2>/dev/null
cp -r "$dir/a" "$dir/less" && rm "$dir/less/tokenizer.json.sits"
cp -r "$dir/a" "$dir/other"
check "a copy is put under another key" '"$sits" rekey --quiet $key_opt --new-key "file:$dir/new" "$dir/other"'
none=$(counter regions)

for provider in ${SITS_TEST_PROVIDERS:-user}; do
	serves "$dir/gguf.sits" "$provider-gguf"
	of_gguf=$regions
	before=$(counter loads)
	serves "$dir/a" "$provider"
	check "of its files only the weights stay in memory ($provider)" 'echo "$regions"; [ "$regions" = "$of_gguf" ]'
	if [ "$provider" = kernel ]; then
		check "the module loaded each of its files, and the manifest" 'counter loads; [ $(($(counter loads) - before)) = 5 ]'
	else
		check "the module loaded none of it" '[ "$(counter loads)" = "$before" ]'
	fi
	refused "$dir/mixed" "config.json.sits: has another digest than manifest.sits says" "a directory of mixed files"
	refused "$dir/changed" "model.safetensors.sits: chunk 0 .* its tag does not verify" "one with a changed file"
	refused "$dir/less" "less/tokenizer.json.sits: No such file" "one with a file missing"
	refused "$dir/other" "manifest.sits: wrong key" "one under another key"
	key=file:$dir/new
	serves "$dir/other" "$provider-new"
	key=
done

case " $SITS_TEST_PROVIDERS " in
*" kernel "*)
	# A key that no process but sits key install has seen: the kernel alone checks the headers.
	provider=kernel key=keyring:directory
	check "a key is installed in the kernel" '"$sits" key install "file:$dir/key" $key'
	serves "$dir/a" logon
	refused "$dir/mixed" "config.json.sits: has another digest than manifest.sits says" "a directory of mixed files, with a key of type logon,"
	refused "$dir/changed" "model.safetensors.sits: chunk 0 .* its tag does not verify" "one with a changed file"
	refused "$dir/other" "manifest.sits: wrong key" "one under another key"
	;;
esac
check "every provider gave the answer of the GGUF" \
	'set -- "$dir"/answer-*; first=$1; for f in "$@"; do cmp "$first" "$f" || exit 1; done'
done_testing
