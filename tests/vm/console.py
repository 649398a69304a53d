# SPDX-License-Identifier: MIT
"""Trouble in a kernel's log: what counts, and in which test it happened.

Only what the kernel itself says of its own state counts. That a program got a signal is for its test to judge, so
"traps: x[1] general protection fault ip:..." and "x[1]: segfault at" are no trouble here.
"""
import re

# Each with the file of the kernel that prints it, so that the words can be checked against newer ones.
SPLATS = [re.compile(p) for p in (
    r"------------\[ cut here \]------------",           # kernel/panic.c
    r"\bWARNING: (?!Unprivileged eBPF)",                  # kernel/panic.c, lockdep.c; not the advice of cpu/bugs.c
    r"\bBUG\b",                                           # mm/fault.c, lib/bug.c, mm/slub.c, mm/kasan, kernel/watchdog.c
    r"\bOops\b",                                          # arch/x86/kernel/dumpstack.c
    r"\bCall Trace:",                                     # the same; nothing prints one for joy
    r"\b(?:general protection fault|invalid opcode|divide error|stack segment|double fault|int3|control protection"
    r"|alignment check|bounds|segment not present|invalid TSS)\b.*(?:\[#\d+\]|, probably for)",  # arch/x86/kernel/traps.c
    r"\bunable to handle\b",                              # arch/x86/mm/fault.c
    r"\bKernel panic\b",                                  # kernel/panic.c
    r"\bINFO: (?!NMI handler)",                           # lockdep.c, hung_task.c, rcu; slow NMIs are emulation's
    r"\brcu.*(?:detected (?:expedited )?stall|self-detected stall|kthread starved)",  # kernel/rcu/tree_stall.h
    r"\binconsistent lock state", r"\bsuspicious RCU usage", r"\bbad unlock balance", r"\block held when returning",
    r"\bDEBUG_LOCKS_WARN_ON",                             # kernel/locking
    r"\b(?:soft|hard) (?:lockup|LOCKUP)\b",               # kernel/watchdog.c
    r"\bblocked for more than \d+ seconds",               # kernel/hung_task.c
    r"\brefcount_t: ",                                    # lib/refcount.c
    r"\bunregister_netdevice: waiting for",               # net/core/dev.c
    r"\bscheduling while atomic", r"\bsleeping function called",  # kernel/sched/core.c
    r"\b(?:UBSAN|KASAN|KCSAN|KMSAN|KFENCE|ODEBUG): ",
    r"\bDMA-API: (?!preallocated|debugging enabled)",     # kernel/dma/debug.c; not that it is there
    r"\bkmemleak: .*\bnew suspected", r"\bunreferenced object 0x",  # mm/kmemleak.c
    r"\blist_(?:add|del) corruption",                     # lib/list_debug.c
    r"\b[Bb]ad page\b", r"\bpage allocation failure", r"\bpage dumped because",  # mm/page_alloc.c, mm/debug.c
    r"\bObjects remaining in ", r"\bcache still has objects", r"\bslab error in ",  # mm/slub.c, mm/slab_common.c
    r"^(?!.*[Cc]group).*\b[Oo]ut of memory\b",            # mm/oom_kill.c; a limit of a cgroup may be a test's own
    r"\bdetected (?:buffer overflow|field-spanning)", r"\bmemory (?:exposure|overwrite) attempt",  # fortify, usercopy
    r"\bstack-protector: ", r"\bstack guard page was hit",
    r"\balg: .*\b(?:fail|differs|overflow|unexpected)",   # crypto/testmgr.c: a cipher that fails its self-test
    r"\bUnknown symbol\b", r"\bdisagrees about version of symbol", r"\bexports duplicate symbol",  # kernel/module
    r"\bcannot create duplicate filename", r"\bkobject_add_internal failed", r"\balready present!",  # sysfs, debugfs
)]
STAMP = re.compile(r"^\[ *[\d.]+\] ")
MARK = re.compile(r"sits-vm: (begin|end) (\S+)")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[c()][0B]?|[\r\0]")


class Splat:
    def __init__(self, number, line, test):
        self.number, self.line, self.test = number, line, test  # line number in the log, from 1

    def __str__(self):
        return f"line {self.number}{f', in {self.test}' if self.test else ''}: {self.line}"


def clean(text):
    return ESCAPES.sub("", text)


def find_splats(text):
    """Every line of a console log that tells of trouble."""
    found, test = [], ""
    lines = clean(text).split("\n")
    for number, line in enumerate(lines, 1):
        if mark := MARK.search(line):
            test = mark[2] if mark[1] == "begin" else ""
        elif any(p.search(line) for p in SPLATS):
            # What a warning says comes on the line after the one that cuts.
            also = f" {STAMP.sub('', lines[number])}" if "[ cut here ]" in line and number < len(lines) else ""
            found.append(Splat(number, line.strip() + also, test))
    return found


# Bits of /proc/sys/kernel/tainted that an out-of-tree module without a signature sets (O, E); any other is trouble.
# Source: the kernel's Documentation/admin-guide/tainted-kernels.rst.
TAINT_NAMES = "PFSRMBUDAWCIOELKXTNJ"
TAINT_FINE = "OE"


def bad_taints(value, fine=TAINT_FINE):
    """The letters of a taint value that a test run should not have, "?" for an unreadable one."""
    if not value.isdigit():
        return "?"
    letters = [TAINT_NAMES[i] if i < len(TAINT_NAMES) else "?" for i in range(int(value).bit_length())
               if int(value) >> i & 1]
    return "".join(c for c in letters if c not in fine)
