# SPDX-License-Identifier: MIT
# Starting and ending sitsd in the guest's shell tests. Sourced after lib.sh.
# The test sets $dir, a directory of its own with a key in it, and $provider; where it wants to, $key: where the key is, and
# $as: words before the command. Here are $sits and $daemon, its process.
sits=$BUILD/sits
daemon=
key=
as=

# start MODEL: wait for the daemon's line of readiness, or for its end.
start() {
	cat >"$dir/sitsd.yaml" <<YAML
provider: $provider
run_dir: "$dir/run"
state_dir: "$dir/state"
model:
  path: "$1"
  key: "${key:-file:$dir/key}"
memory:
  require_locked: false
YAML
	mkfifo "$dir/ready"
	$as "$BUILD/sitsd" --config "$dir/sitsd.yaml" --ready-fd 8 8>"$dir/ready" >"$dir/sitsd.log" 2>&1 &
	daemon=$!
	read -r line <"$dir/ready"
	rm "$dir/ready"
	[ "$line" = READY ]
}

stop() {
	kill -TERM "$daemon" && wait "$daemon"
}
