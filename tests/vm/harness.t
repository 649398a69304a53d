#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The harness of the virtual machine sees trouble: logs as the kernel writes them, reports of guests that fail in
every way, and one real guest that hangs in a test and crashes in the next."""
import contextlib
import importlib.machinery
import importlib.util
import io
import lzma
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
loader = importlib.machinery.SourceFileLoader("vm_run", str(HERE / "run"))
vm = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm_run", loader))
loader.exec_module(vm)
console = vm.console
results = []


def check(name, good, detail=""):
    results.append(bool(good))
    print(f"{'ok' if good else 'not ok'} {len(results)} - {name}", flush=True)
    if not good:
        for line in str(detail).splitlines():
            print("#", line)


# One line of each kind, in the words of Linux 6.1 and 6.12.
TROUBLE = """\
------------[ cut here ]------------
WARNING: CPU: 1 PID: 341 at drivers/misc/sits/region.c:120 sits_region_free+0x1c2/0x1d0 [sits]
WARNING: possible circular locking dependency detected
WARNING: possible recursive locking detected
WARNING: suspicious RCU usage
WARNING: lock held when returning to user space!
WARNING: bad unlock balance detected!
WARNING: inconsistent lock state
WARNING: Flushing system-wide workqueues will be prohibited in near future.
BUG: kernel NULL pointer dereference, address: 0000000000000008
BUG: unable to handle page fault for address: ffffc90000a3f000
BUG: KASAN: slab-use-after-free in sits_queue_put+0x44/0x60 [sits]
BUG: sleeping function called from invalid context at kernel/locking/mutex.c:585
BUG: scheduling while atomic: sitsd/312/0x00000002
BUG: soft lockup - CPU#0 stuck for 67s! [sitsd:312]
watchdog: BUG: soft lockup - CPU#0 stuck for 67s! [sitsd:312]
BUG: Bad page state in process sitsd  pfn:10a3f
BUG: Bad rss-counter state mm:0000000042a1b7c3 type:MM_FILEPAGES val:3
BUG: non-zero pgtables_bytes on freeing mm: 4096
BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 45s!
BUG kmalloc-64 (Tainted: G           OE     ): Poison overwritten
BUG sits_request (Tainted: G OE): Objects remaining in sits_request on __kmem_cache_shutdown()
kernel BUG at mm/usercopy.c:102!
Oops: 0000 [#1] PREEMPT SMP NOPTI
Oops: general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] PREEMPT SMP
general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] PREEMPT SMP NOPTI
invalid opcode: 0000 [#1] PREEMPT SMP NOPTI
divide error: 0000 [#1] PREEMPT SMP
stack segment: 0000 [#1] PREEMPT SMP
Kernel panic - not syncing: sysrq triggered crash
Call Trace:
INFO: task sitsd:312 blocked for more than 40 seconds.
INFO: task rmmod:341 blocked on a mutex likely owned by task sitsd:312.
rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
rcu: INFO: rcu_preempt self-detected stall on CPU
rcu: rcu_preempt kthread starved for 15002 jiffies! g4021 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=1
rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-...D } 6010 jiffies s: 161 root: 0x2/.
refcount_t: underflow; use-after-free.
refcount_t: addition on 0; use-after-free.
unregister_netdevice: waiting for lo to become free. Usage count = 2
UBSAN: shift-out-of-bounds in kmod/queue.c:77:12
KCSAN: data-race in sits_queue_push / sits_queue_pop
kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
unreferenced object 0xffff888004a0c000 (size 64):
ODEBUG: free active (active state 0) object type: timer_list hint: sits_deadline+0x0/0x40 [sits]
DMA-API: edu 0000:00:02.0: device driver has pending DMA allocations while released from device [count=1]
list_add corruption. prev->next should be next (ffff88800a), but was dead000000000100. (prev=ffff88800b).
list_del corruption, ffff888003f5e0c0->next is LIST_POISON1 (dead000000000100)
sitsd: page allocation failure: order:9, mode:0xcc0(GFP_KERNEL), nodemask=(null)
page dumped because: nonzero _refcount
kmem_cache_destroy sits_request: Slab cache still has objects when called from sits_exit+0x10/0x30 [sits]
Out of memory: Killed process 312 (sitsd) total-vm:1048576kB, anon-rss:1000kB
memcpy: detected field-spanning write (size 64) of single field "req->inline" at kmod/queue.c:90 (size 56)
usercopy: Kernel memory exposure attempt detected from SLUB object 'kmalloc-64' (offset 0, size 80)!
alg: skcipher: ctr-sm4-sits encryption test failed (wrong result) on test vector 0, cfg="in-place (one sglist)"
alg: self-tests for gcm(sm4) using gcm_base(ctr-sm4-sits,ghash-generic) failed (rc=-22)
alg: aead: failed to allocate transform for gcm(sm4): -2
sits: Unknown symbol dma_buf_export (err -2)
sits: disagrees about version of symbol module_layout
sysfs: cannot create duplicate filename '/devices/virtual/misc/sits'
debugfs: Directory 'sits' with parent '/' already present!
""".splitlines()

HARMLESS = """\
Linux version 6.1.0-57-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP PREEMPT_DYNAMIC
sits_sm4: loading out-of-tree module taints kernel.
sits_sm4: module verification failed: signature and/or required key missing - tainting kernel
traps: attacker[214] general protection fault ip:55e0a1 sp:7ffd10 error:0 in attacker[55e0a0+1000]
traps: attacker[214] trap invalid opcode ip:55e0a1 sp:7ffd10 error:0 in attacker[55e0a0+1000]
attacker[215]: segfault at 7f0000000000 ip 000055d1 sp 00007ffe error 7 in attacker[55d0+1000]
Memory cgroup out of memory: Killed process 301 (eater) total-vm:20000kB, anon-rss:9000kB
tsc: Marking TSC unstable due to clocksource watchdog
clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable because the skew is too large:
INFO: NMI handler (perf_event_nmi_handler) took too long to run: 12.3 msecs
Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible via Spectre v2 BHB attacks!
debug: DEBUG builds have DEBUGGING
process 'sits-vm' started with executable stack
x86/fpu: Supporting XSAVE feature 0x002: 'SSE registers'
sits: region 4: freed 512 pages
""".splitlines()


def stamped(lines):
    return "".join(f"[{i:5d}.{i * 137 % 1000000:06d}] {line}\r\n" for i, line in enumerate(lines))


missed = [line for line in TROUBLE if not console.find_splats(stamped([line]))]
check(f"{len(TROUBLE)} kinds of trouble are seen", not missed, "\n".join(missed))
false = [line for line in HARMLESS if console.find_splats(stamped([line]))]
check(f"{len(HARMLESS)} harmless lines are not taken for trouble", not false, "\n".join(false))

log = stamped(["sits-vm: begin vm/guest/a.t", "sits-vm: end vm/guest/a.t", "sits-vm: begin unit/b_test",
               "\x1b[31mOops: 0002 [#1] PREEMPT SMP\x1b[0m"])
found = console.find_splats(log)
check("trouble is named with its line and the test it came in",
      [(s.number, s.test) for s in found] == [(4, "unit/b_test")] and found[0].line.endswith("Oops: 0002 [#1] PREEMPT SMP"),
      "\n".join(map(str, found)))
check("taints: our modules' own are fine, others are named", [console.bad_taints(t) for t in (
      "0", "4096", "12288", "512", "12928", "x", "16384")] == ["", "", "", "W", "DW", "?", "L"])


class Case:
    """A guest in words: a shell script that writes its console to $LOG and its report to standard output."""

    def __init__(self, script, tests=("a", "b")):
        self.out = io.StringIO()
        with tempfile.TemporaryDirectory(prefix="sits-vm-") as tmp, contextlib.redirect_stdout(self.out):
            log = pathlib.Path(tmp) / "console"
            entries = [vm.Test({"timeout": 1}, t) for t in tests]
            tap = vm.Tap()
            guest, ended, taint = vm.boot_and_run(
                lambda: vm.Guest(["env", f"LOG={log}", f"DIR={tmp}", "sh", "-c", script], log),
                entries, tap, "guest", pathlib.Path(tmp))
            vm.judge_guest(guest, entries, ended, taint, tap, "guest")
            self.alive = guest.proc.poll() is None
            tap.plan()
        self.text, self.tap = self.out.getvalue(), tap
        self.bad = [line.split(" - ", 1)[1] for line in self.text.splitlines() if line.startswith("not ok")]

    def fails_with(self, name, *words):
        missing = [w for w in words if not any(w in line for line in self.bad)]
        check(name, self.bad and not missing and not self.alive, f"not there: {missing}\n{self.text}")


def report(*lines):
    return "".join(f"echo '{line}'; " for line in lines)


A = report(":begin a", "|ok 1 - one", "|1..1", ":end a exit 0")
B = report(":begin b", "|1..2", "|ok 1 - one", "|ok 2 # SKIP two", ":end b exit 0")
DONE = report(":done 12288")
# Far from what real guests get, near enough not to be waited for.
vm.BOOT_SECONDS, vm.GRACE_SECONDS, vm.TOTAL_SECONDS, vm.PROBE_SECONDS = 3, 2, 6, 2

case = Case("echo fine >$LOG; " + A + B + DONE)
check("a good guest passes", not case.bad and case.tap.count == 5 and case.tap.skipped == 1, case.text)
Case("echo BUG: x >$LOG; " + A + B + DONE).fails_with("a splat alone fails", "1 lines of trouble")
case = Case("printf 'sits-vm: begin a\\nOops: 0000\\nKernel panic - not syncing\\n' >$LOG; " + report(":begin a", "|ok 1 - one"))
case.fails_with("a guest that dies in a test fails that test", "a: the guest died", "did not run to their end: a, b", "2 lines")
check("and the lines are shown", "# line 2, in a: Oops: 0000" in case.text, case.text)
Case("echo no init >$LOG; exit 1").fails_with("a guest that dies before its first test", "died before its first test")
case = Case("[ -e $DIR/again ] || { echo 'Oops: int3' >$LOG; touch $DIR/again; exit 1; }; " + A + B + DONE)
check("it gets a second chance, and the output says so", not case.bad and "once more" in case.text, case.text)
Case(A + "echo x >$LOG").fails_with("a guest that dies between tests", "the guest died after a", "to their end: b")
Case("exec sleep 1000").fails_with("a guest that hangs at boot", "the guest hangs before its first test")
Case(A + report(":begin b") + "exec sleep 1000").fails_with("a guest that hangs in a test", "b: the guest hangs")
Case(A + B + DONE + "exec sleep 1000").fails_with("a guest that does not power off", "does not power off")
Case(report(":begin a") + "while :; do echo '|more'; done").fails_with("a guest that talks for ever", "a: the guest hangs")
Case(A + B + report(":done 512")).fails_with("a taint alone fails", "untainted but for our modules: W")
Case(A + B + "exit 0").fails_with("a report without its end", "the guest died after b")
Case("printf ':begin a\\n|\\377\\376\\0x\\n|1..1\\n|ok\\n:end a exit 0\\n'; " + B + report(":done 4098")).fails_with(
    "bytes that are no text are no harm, a forced module is", "untainted but for our modules: F")
for how, words in {"signal 11": "a: killed by signal 11", "timeout 1": "a: still running after 1 s, killed",
                   "stuck 1": "stuck in the kernel", "exit 3": "a: exit status 3"}.items():
    Case(report(":begin a", "|1..1", "|ok 1 - one", f":end a {how}") + B + DONE).fails_with(f"a test that ends with {how}", words)
for lines, words in {("|ok 1 - one",): "printed no TAP plan", ("|1..2", "|ok 1 - one"): "planned 2 tests, ran 1",
                     ("|1..1", "|not ok 1 - one"): "a: one", ("|Bail out! no disk", "|1..0"): "Bail out! no disk",
                     ("|1..1", "|ok", ":fail modprobe sits: exit 1"): "a: modprobe sits: exit 1"}.items():
    Case(report(":begin a", *lines, ":end a exit 0") + B + DONE).fails_with(f"a test that prints {' '.join(lines)}", words)
case = Case(report(":begin a", "|not ok 1 - one", "|# because") + "seq -f '|ok %g - more' 2 300; " +
            report("|1..300", ":end a exit 1") + B + DONE)
check("what a test said of a failure is shown, however much passes after it", "#   # because" in case.text
      and len(case.text.splitlines()) < 400, case.text)
case = Case(report(":begin a") + "sleep 0.6; " + report("|1..1", "|ok 1 - one", ":end a exit 0") + B + DONE)
check("a test that comes near its limit is named", not case.bad and re.search(r"^# a took \d+ of its 1 s$", case.text, re.M)
      and "# b took" not in case.text, case.text)
case = Case(report(":begin a", "|1..0 # SKIP no such device", ":end a exit 0") + B + DONE)
check("a test that skips itself is a skip, with its reason", not case.bad and case.tap.skipped == 2
      and "# SKIP no such device" in case.text, case.text)

# Bochs: the disk, and programs as its GFNI wants them.
with tempfile.TemporaryDirectory(prefix="sits-vm-") as tmp:
    tmp = pathlib.Path(tmp)
    (tmp / "g.s").write_text(""".globl _start
_start: gf2p8affineqb $0x63, %xmm1, %xmm0
\tvgf2p8affineinvqb $0, %ymm1, %ymm2, %ymm3
\tnop
\tvgf2p8affineqb $0xa5, 8(%rax){1to8}, %zmm31, %zmm30
\tmov $0x63, %al
""")
    subprocess.run(["gcc", "-nostdlib", "-static", "-o", tmp / "g", tmp / "g.s"], check=True)
    vm.bochs.without_gfni_fault(tmp / "g", tmp / "bin/g")
    subprocess.run(["objcopy", "--strip-debug", tmp / "g"], check=True)
    before, after = (tmp / "g").read_bytes(), (tmp / "bin/g").read_bytes()
    check("Bochs: each affine map of GFNI is inverted, and nothing else", len(before) == len(after) and
          [(a, b) for a, b in zip(before, after) if a != b] == [(0x63, 0x9c), (0, 0xff), (0xa5, 0x5a)])

    elf = bytearray(0x3000)
    struct.pack_into("<4s20xQQ", elf, 0, b"\x7fELF", 0x1000010, 64)
    struct.pack_into("<HH", elf, 54, 56, 2)
    struct.pack_into("<IIQQQQQQ", elf, 64, 1, 5, 0x1000, 1 << 63, 0x1000000, 0x800, 0x800, 0)
    struct.pack_into("<IIQQQQQQ", elf, 120, 1, 6, 0x2000, 1 << 63, 0x1001000, 0x400, 0x5000, 0)
    elf[0x1000:0x1800], elf[0x2000:0x2400] = b"T" * 0x800, b"D" * 0x400
    vmlinuz, packed = bytearray(1024), lzma.compress(bytes(elf), format=lzma.FORMAT_XZ) + struct.pack("<I", len(elf))
    vmlinuz[0x1f1:0x206] = bytes([1]) + bytes(0x0f) + b"\xeb\x6aHdrS"[:5]
    struct.pack_into("<II", vmlinuz, 0x248, 0, len(packed))
    cylinders = vm.bochs.write_disk(tmp / "disk", bytes(510) + b"\x55\xaa", bytes(vmlinuz + packed), b"R" * 70000)
    disk = (tmp / "disk").read_bytes()
    entry, params, tables, *parts = struct.unpack_from("<12I", disk, 510 - 48)
    parts = [(parts[i], parts[i + 1], disk[parts[i + 2] * 512:]) for i in (0, 3, 6)]
    check("Bochs: the disk has the kernel as it lies in memory, and the initramfs behind all that it takes",
          len(disk) == cylinders * 512 * 16 * 63 and (entry, params) == (0x1000010, parts[0][0])
          and parts[1][:2] == (0x1000000, 1) and parts[1][2][:0x1400] == b"T" * 0x800 + bytes(0x800) + b"D" * 0x400
          and parts[2][:2] == (0x1200000, 3) and parts[2][2][:70001] == b"R" * 70000 + b"\0")
    low = parts[0][2]
    check("Bochs: the boot parameters name the initramfs and the command line, and the tables map memory to itself",
          struct.unpack_from("<II", low, 0x218) == (0x1200000, 70000)
          and low[struct.unpack_from("<I", low, 0x228)[0] - params:].startswith(vm.bochs.COMMAND_LINE.encode() + b"\0")
          and struct.unpack_from("<Q", low, tables - params)[0] == tables + 0x1003
          and struct.unpack_from("<Q", low, tables - params + 0x2000 + 8 * 2047)[0] == (2047 << 21) + 0x83)

# Which accelerator: by the processor's flags, and then only if a guest with it comes up.
with tempfile.TemporaryDirectory(prefix="sits-vm-") as tmp:
    tmp = pathlib.Path(tmp)
    (tmp / "with").write_text("flags\t\t: fpu vme svm npt\n")
    (tmp / "without").write_text("flags\t\t: fpu vme svmx\n")
    (tmp / "kvm").write_text("")

    class kernel:
        vmlinuz = "none"

    def accel(script, cpuinfo="with", device="kvm"):
        vm.QEMU = str(tmp / "qemu")
        pathlib.Path(vm.QEMU).write_text(f"#!/bin/sh\n{script}\n")
        os.chmod(vm.QEMU, 0o755)
        return vm.choose_accel(kernel, "none", {}, str(tmp / cpuinfo), str(tmp / device))

    got = [accel("echo ':done 0'"), accel("exec sleep 1000"), accel("exit 1"), accel("echo ':done 0'", "without"),
           accel("echo ':done 0'", device="none")]
    check("KVM is used where a guest proves it, never on the word of /dev/kvm", got == ["kvm", "tcg", "tcg", "tcg", "tcg"], got)

run = [str(HERE / "run"), "--kernel", "6.1"]
p = subprocess.run([*run, "--may-skip"], capture_output=True, text=True, env={**os.environ, "SITS_VM_QEMU": "no-such-qemu"})
check("without QEMU the tests skip and say why", p.returncode == 0 and p.stdout.startswith("1..0 # SKIP no-such-qemu"), p)
p = subprocess.run(run, capture_output=True, text=True, env={**os.environ, "SITS_VM_QEMU": "no-such-qemu"})
check("but for who asked for them that is an error", p.returncode == 2 and "no-such-qemu" in p.stderr, p)

# The real thing.
with tempfile.TemporaryDirectory(prefix="sits-vm-") as tmp:
    p = subprocess.run([*run, "--may-skip", "--manifest", str(HERE / "harness.toml"), "--logs", tmp], capture_output=True, text=True)
    if p.stdout.startswith("1..0 # SKIP"):
        results.append(True)
        print(f"ok {len(results)} - a real guest {p.stdout[5:].strip()}")
    else:
        for name, words in {
                "a test passes, whatever it leaves running": "- vm/guest/harness/good.t: first\n",
                "a skip comes through": "vm/guest/harness/good.t: second # SKIP for a reason",
                "a warning is named with its test": ", in unit/crypto/sm4_test: ",
                "what was warned of is there": "sits_test_splat: a warning",
                "so is a reference count that leaks": "refcount_t: ",
                "a test that hangs is killed": "vm/guest/harness/hang.t: still running after ",
                "what it hung in is shown": "do_wait",
                "a crash is a failure of its test": "vm/guest/harness/crash.t: the guest died",
                "its panic is named with its test": ", in vm/guest/harness/crash.t: ",
                "the tests after it count as not run": "did not run to their end: vm/guest/harness/crash.t, unit/crypto/sm3_test",
        }.items():
            check(f"a real guest: {name}", words in p.stdout and p.returncode == 1, p.stdout + p.stderr)

print(f"1..{len(results)}")
sys.exit(not all(results))
