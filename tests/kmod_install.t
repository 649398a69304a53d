#!/bin/bash
# SPDX-License-Identifier: MIT
# side by side
# kmod_install.t - what is installed with the kernel modules works: the sources that DKMS gets build by the line that DKMS would
# run, the modules lie where modprobe looks, the udev rule, users, parameters and unit are understood by those who read them.
set -u
export PATH=$PATH:/sbin:/usr/sbin
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
count=0 failed=0

check()	# name, command...
{
	local name=$1
	shift
	count=$((count + 1))
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok $count - $name"
	else
		failed=$((failed + 1))
		echo "not ok $count - $name"
		sed 's/^/# /' "$tmp/out"
	fi
}

skip()
{
	count=$((count + 1))
	echo "ok $count - $1 # SKIP $2"
}

version=$(sed -n 's/^VERSION := //p' Makefile)
dest=$tmp/dest
make_() { env -u MAKEFLAGS -u MFLAGS make --no-print-directory DESTDIR="$dest" PREFIX=/usr "$@"; }

# ------------------------------------------------------------------ DKMS
src=$dest/usr/src/sits-$version
check "sources for DKMS are installed" make_ install-dkms
check "without objects, without the tree's Makefile, without userspace" \
	bash -c "test -e '$src/Kbuild' && ! find '$src' -name '*.o' -o -name Makefile -o -name '*.t' -o -path '*/libsits/*' | grep ."
check "again, in their place" make_ install-dkms
check "nothing is left to be filled in" bash -c "! grep '@[A-Z]*@' '$src/dkms.conf'"

# DKMS copies the sources to its own tree, sets these variables, and runs the lines.
dkms_build()	# headers, release
(
	set -e
	dkms_tree=$tmp/dkms-$2 kernel_source_dir=$1 kernelver=$2 arch=x86_64
	# shellcheck disable=SC1091
	. "$src/dkms.conf"
	[ "$PACKAGE_NAME/$PACKAGE_VERSION" = "sits/$version" ] && [ "$AUTOINSTALL" = yes ]
	build=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build
	mkdir -p "$(dirname "$build")"
	cp -r "$src" "$build"
	cd "$build"
	unset MAKEFLAGS MFLAGS
	eval "${MAKE[0]}"
	for i in 0 1; do
		case ${DEST_MODULE_LOCATION[$i]} in /updates*) ;; *) exit 1 ;; esac
		modinfo -F vermagic "${BUILT_MODULE_LOCATION[$i]:-.}/${BUILT_MODULE_NAME[$i]}.ko" | grep "^$2 "
	done
	[ "${#BUILT_MODULE_NAME[@]}" = 2 ]
	eval "$CLEAN"
	! find . -name '*.ko' | grep .
)

# ------------------------------------------------------------------ the modules
modules_installed()	# headers, release
{
	local to=$dest/lib/modules/$2
	make_ install-kmod KDIR="$1" KMOD_O="$tmp" || return
	for m in sits sits_sm4; do
		[ "$(modinfo -F vermagic "$to/updates/$m.ko" | cut -d' ' -f1)" = "$2" ] || return
		[ "$(stat -c %a "$to/updates/$m.ko")" = 644 ] || return
		! readelf -S "$to/updates/$m.ko" | grep '\.debug_info' || return
	done
	# As modprobe would find them.
	depmod -b "$dest" "$2" && modprobe -d "$dest" -S "$2" --show-depends sits | grep "updates/sits.ko" &&
		modprobe -d "$dest" -S "$2" --show-depends 'crypto-ctr(sm4)' | grep "updates/sits_sm4.ko"
}

for series in 6.1 6.12; do
	if ! kdir=$(tests/vm/kernels.py $series 2>"$tmp/why"); then
		skip "Linux $series" "no headers of it: $(tail -n 1 "$tmp/why")"
		continue
	fi
	release=$(sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' "$kdir/include/generated/utsrelease.h")
	check "Linux $series: both modules build as DKMS builds them" dkms_build "$kdir" "$release"
	check "Linux $series: modules are installed where modprobe looks" modules_installed "$kdir" "$release"
done

# ------------------------------------------------------------------ what goes with them
check "udev rule, users, parameters and header are installed" make_ install-device
rules=$dest/usr/lib/udev/rules.d/60-sits.rules

# Each line of a rule is a list of KEY OP "value", and udev knows the keys.
rules_are_well_formed()
{
	grep -vE '^(#|$)' "$rules" >"$tmp/rules"
	[ "$(grep -cE 'RUN\+=' "$tmp/rules")" = 1 ] || return
	! grep -vE '^((ACTION|KERNEL|SUBSYSTEM|GOTO|LABEL|GROUP|MODE|RUN)(==|!=|\+=|=)"[^"]*"(, |$))+$' "$tmp/rules"
}
check "the udev rule is well formed" rules_are_well_formed
check "labels that it goes to exist" bash -c "for l in \$(grep -o 'GOTO=\"[a-z_]*' '$rules' | sed 's/.*\"//'); do grep -q \"^LABEL=\\\"\$l\\\"\" '$rules' || exit 1; done"
if command -v udevadm >/dev/null && udevadm verify --help >/dev/null 2>&1; then
	check "udevadm verifies it" udevadm verify "$rules"
else
	skip "udevadm verifies it" "udevadm verify comes with systemd 254"
fi

# Its command, with a file in place of the parameter and a database in place of the machine's.
rule_sets_group()
{
	local cmd
	cmd=$(sed -n "s/.*RUN+=\"\/bin\/sh -c '\(.*\)'\"\$/\1/p" "$rules" | sed "s|\\$\\$|\$|g; s|/sys/module/sits/parameters/|$tmp/|")
	[ -n "$cmd" ] || return
	mkdir -p "$tmp/bin"
	printf '#!/bin/sh\n[ "$1 $2" = "group sits-own" ] && echo "sits-own:x:987:sits"\n' >"$tmp/bin/getent"
	chmod +x "$tmp/bin/getent"
	PATH=$tmp/bin:$PATH /bin/sh -c "$cmd" && [ "$(cat "$tmp/owner_gid")" = 987 ] || return
	printf '#!/bin/sh\nexit 2\n' >"$tmp/bin/getent"
	rm "$tmp/owner_gid"
	! PATH=$tmp/bin:$PATH /bin/sh -c "$cmd" && [ ! -e "$tmp/owner_gid" ]
}
check "it gives the module the number of the group, and nothing where there is none" rule_sets_group
check "its parameter is one of the module's" grep -q 'module_param(owner_gid' kmod/device.c

users_are_made()
{
	mkdir -p "$tmp/root/etc"
	: >"$tmp/root/etc/passwd"
	: >"$tmp/root/etc/group"
	systemd-sysusers --root="$tmp/root" "$dest/usr/lib/sysusers.d/sits.conf" || return
	grep '^sits:' "$tmp/root/etc/passwd" | grep -E ':/var/lib/sits:.*nologin$' && grep '^sits-own:.*:sits$' "$tmp/root/etc/group"
}
if command -v systemd-sysusers >/dev/null && [ "$(id -u)" = 0 ]; then
	check "the user and the groups are made" users_are_made
else
	skip "the user and the groups are made" "needs systemd-sysusers, and root"
fi

parameters_are_read()
{
	local conf=$dest/usr/share/sits/modprobe.conf name
	# With the comment signs of its examples off.
	sed 's/^#\(options\|install\)/\1/' "$conf" >"$tmp/modprobe.conf"
	modprobe -C "$tmp/modprobe.conf" --showconfig >"$tmp/config" 2>&1 || return
	[ "$(grep -c '^options sits ' "$tmp/config")" = 3 ] && grep -q '^install sits /bin/false' "$tmp/config" || { cat "$tmp/config"; return 1; }
	for name in $(sed -n 's/^options sits \([a-z_]*\)=.*/\1/p' "$tmp/config"); do
		grep -qE "module_param(_named)?\($name," kmod/*.c || { echo "$name is no parameter"; return 1; }
	done
}
check "the example of modprobe.d names parameters that there are" parameters_are_read
check "nothing in it is in force" bash -c "! grep -v '^#' '$dest/usr/share/sits/modprobe.conf' | grep ."
check "the header is the tree's, and compiles alone" bash -c \
	"cmp include/uapi/linux/sits.h '$dest/usr/include/linux/sits.h' && echo '#include <linux/sits.h>' | gcc -Wall -Werror -fsyntax-only -I'$dest/usr/include' -xc -"

unit_is_understood()
{
	local unit=$tmp/unit/sitsd.service
	make_ install-service || return
	mkdir -p "$tmp/unit"
	# The daemon is not installed on this machine.
	sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$dest/usr/lib/systemd/system/sitsd.service" >"$unit"
	# In the unit's own name alone: what it says of the machine's other units is not ours.
	systemd-analyze verify --man=no "$unit" 2>&1 | grep -i sitsd | tee "$tmp/said"
	[ ! -s "$tmp/said" ] && grep -q '^Wants=modprobe@sits.service$' "$unit" && grep -q '^DeviceAllow=/dev/sits rw$' "$unit"
}
if command -v systemd-analyze >/dev/null; then
	check "systemd understands the unit, which loads the module" unit_is_understood
else
	skip "systemd understands the unit, which loads the module" "systemd-analyze is not installed"
fi
echo "1..$count"
exit $((failed != 0))
