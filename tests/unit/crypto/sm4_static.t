#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Read the machine code of SM4's vector cores: no branch, address or variable-time instruction depends on a secret.

Follows every path from the functions of each core's table through a linked program, with what each register holds: a public
value, a secret, or a pointer to either. Secret is whatever is loaded through the pointers to keys, texts, tweaks and hashes, and what is
computed from it; public are lengths, pointers, constants and what the pointer to a counter points to. It complains of

 - a conditional jump, or an indirect one, on a secret; a division; a string instruction whose length is secret
 - an address made of a secret (so gathers of any kind)
 - a secret stored where public values are
 - an instruction that it does not know, or that wants more of the processor than the core asks for

This is for the cores that valgrind cannot run (GFNI, AVX-512: sm4_ct_test.c); the others go through it as well. What it
relies on: which vector instructions take the same time for all operands (all of those here do).

usage: sm4_static.t [PROGRAM]   ($BUILD/tests/unit/crypto/sm4_ct_test)
"""
import collections
import os
import re
import subprocess
import sys

PUB, SEC = 'pub', 'sec'
# A pointer to secret or public bytes; ('stack', frame, offset); ('const', n) is a public value that is known; ('at', addresses)
# are places in the program, code or data.
PTR_SEC, PTR_PUB = ('ptr', SEC), ('ptr', PUB)

CORES = ('sits_sm4_aesni_avx2', 'sits_sm4_gfni_avx2', 'sits_sm4_gfni_avx512')
# struct sits_sm4_core: offset of a function, its name, what its arguments are.
K, S, C, N = PTR_SEC, PTR_SEC, PTR_PUB, PUB  # key; secret bytes; counter; length or flag
FUNCTIONS = (
    (16, 'crypt', (K, S, S, N)), (24, 'cbc_decrypt', (K, S, S, S, N)), (32, 'ctr128', (K, C, S, S, N)),
    (40, 'ctr32', (K, C, S, S, N)), (48, 'xts', (K, S, S, S, N, N)), (56, 'ghash_key', (S,)), (64, 'ghash', (K, S, S, N)),
    (72, 'gcm_encrypt', (K, K, C, S, S, S, N)), (80, 'gcm_decrypt', (K, K, C, S, S, S, N)))
ARGS = ('rdi', 'rsi', 'rdx', 'rcx', 'r8', 'r9')
SCRATCH = ('rax', 'rcx', 'rdx', 'rsi', 'rdi', 'r8', 'r9', 'r10', 'r11')

GPR = {}
for wide, names in {'rax': 'eax ax al ah', 'rbx': 'ebx bx bl bh', 'rcx': 'ecx cx cl ch', 'rdx': 'edx dx dl dh',
                    'rsi': 'esi si sil', 'rdi': 'edi di dil', 'rbp': 'ebp bp bpl', 'rsp': 'esp sp spl'}.items():
    GPR[wide] = (wide, 8)
    for n in names.split():
        GPR[n] = (wide, 4 if n[0] == 'e' else 2 if len(n) == 2 and n[1] in 'xip' else 1)
for i in range(8, 16):
    for suffix, size in (('', 8), ('d', 4), ('w', 2), ('b', 1)):
        GPR[f'r{i}{suffix}'] = (f'r{i}', size)


class Insn:
    __slots__ = ('at', 'next', 'name', 'ops', 'target', 'text')


def split_operands(text):
    ops, depth, cur = [], 0, ''
    for ch in text:
        depth += (ch == '(') - (ch == ')')
        if ch == ',' and not depth:
            ops.append(cur)
            cur = ''
        else:
            cur += ch
    return [o.strip() for o in ops + [cur] if o.strip()]


def disassemble(program):
    out = subprocess.run(['objdump', '-d', '--no-show-raw-insn', '-j', '.text', '-j', '.plt', '-j', '.plt.got', '-j', '.plt.sec',
                          program], check=True, capture_output=True, text=True).stdout
    insns, symbol, last = {}, {}, None
    for line in out.splitlines():
        if m := re.match(r'([0-9a-f]+) <(.+)>:$', line):
            symbol[int(m[1], 16)] = m[2]
            continue
        m = re.match(r'\s*([0-9a-f]+):\t(.*)$', line)
        if not m:
            continue
        i = Insn()
        i.at, i.text = int(m[1], 16), m[2].strip()
        body = i.text.split('#')[0].strip()
        words = body.split(None, 1)
        while words and words[0] in ('notrack', 'bnd', 'data16', 'cs', 'rep', 'repz', 'lock', 'ds', 'es', 'addr32'):
            if words[0] in ('rep', 'repz') and len(words) > 1 and not words[1].startswith('ret'):
                words = ['rep_' + words[1].split()[0]] + words[1].split(None, 1)[1:]
                break
            words = words[1].split(None, 1) if len(words) > 1 else []
        i.name = words[0] if words else 'nop'
        i.target = None
        rest = words[1] if len(words) > 1 else ''
        if t := re.match(r'([0-9a-f]+) <(.+)>$', rest):
            i.target = int(t[1], 16)
            rest = ''
        i.ops = split_operands(re.sub(r'<[^>]*>', '', rest))
        insns[i.at] = i
        if last:
            last.next = i.at
        i.next = None
        last = i
    return insns, symbol


def table_entries(program):
    """Relocations, and each core's functions: those of its table."""
    syms = {}
    for line in subprocess.run(['nm', program], check=True, capture_output=True, text=True).stdout.splitlines():
        parts = line.split()
        if len(parts) == 3:
            syms[parts[2]] = int(parts[0], 16)
    relocs = {}
    for line in subprocess.run(['readelf', '-rW', program], check=True, capture_output=True, text=True).stdout.splitlines():
        m = re.match(r'([0-9a-f]{16})\s+\S+\s+R_X86_64_RELATIVE\s+([0-9a-f]+)', line)
        if m:
            relocs[int(m[1], 16)] = int(m[2], 16)
    return syms, relocs, [(core, [(name, relocs[syms[core] + off], args) for off, name, args in FUNCTIONS]) for core in CORES
                    if core in syms]


class State:
    """
    What registers hold: vectors and masks by number (xmm0 is zmm0); each byte of the stack that was written to, by (frame,
    offset); and what is no mere number of the registers that were stored there.
    """
    __slots__ = ('gpr', 'vec', 'mask', 'flags', 'bytes', 'spilled')

    def copy(self):
        s = State()
        s.gpr, s.vec, s.mask, s.flags = dict(self.gpr), list(self.vec), list(self.mask), self.flags
        s.bytes, s.spilled = dict(self.bytes), dict(self.spilled)
        return s

    def put(self, frame, at, value, size):
        level = SEC if secret(value) else PUB
        for i in range(size):
            self.bytes[frame, at + i] = level
        for i in range(-7, size):
            self.spilled.pop((frame, at + i), None)
        if size == 8 and isinstance(value, tuple):
            self.spilled[frame, at] = value

    def get(self, frame, at, size):
        """What was never written is taken for a secret."""
        if size == 8 and (frame, at) in self.spilled:
            return self.spilled[frame, at]
        return SEC if any(self.bytes.get((frame, at + i)) != PUB for i in range(size)) else PUB


def secret(v):
    return v == SEC


def join(a, b):
    if a == b:
        return a
    if SEC in (a, b):
        return SEC
    if a[0] == b[0] == 'at':
        return ('at', a[1] | b[1])
    pointers = [v for v in (a, b) if v[0] in ('ptr', 'stack', 'at')]
    if pointers:
        return PTR_PUB if all(v == PTR_PUB for v in pointers) and len(pointers) == 2 else PTR_SEC
    return PUB


def join_states(old, new):
    """Return: old grown by new, or None where that changes nothing."""
    changed = False
    s = old.copy()
    for r, v in new.gpr.items():
        j = join(s.gpr[r], v)
        if j != s.gpr[r]:
            s.gpr[r], changed = j, True
    for mine, theirs in ((s.vec, new.vec), (s.mask, new.mask)):
        for i, v in enumerate(theirs):
            if secret(v) and not secret(mine[i]):
                mine[i], changed = SEC, True
    if secret(new.flags) and not secret(s.flags):
        s.flags, changed = SEC, True
    # What one path has not written holds what the other wrote.
    for k, level in new.bytes.items():
        if s.bytes.get(k) != level and s.bytes.get(k) != SEC:
            s.bytes[k], changed = level, True
    for k, v in list(s.spilled.items()):
        j = join(v, new.spilled[k]) if k in new.spilled else v if k not in new.bytes else PUB
        if j != v:
            changed = True
            if isinstance(j, tuple):
                s.spilled[k] = j
            else:
                del s.spilled[k]
                s.put(*k, j, 8)
    for k, v in new.spilled.items():
        if k not in s.spilled and k not in old.bytes:
            s.spilled[k], changed = v, True
    return s if changed else None


class Checker:
    def __init__(self, insns, symbol, relocs):
        self.insns, self.symbol, self.relocs = insns, symbol, relocs
        self.complaints = collections.OrderedDict()
        self.seen = set()  # addresses
        # Where paths may meet: there alone states are kept.
        self.leaders = {i.target for i in insns.values() if i.target} | set(relocs.values())
        self.leaders |= {i.next for i in insns.values() if i.name in ('call', 'callq') or self.JUMPS.match(i.name)}

    def complain(self, i, what):
        self.complaints.setdefault(i.at, f'{i.at:x}: {i.text}: {what}')

    # ------------------------------------------------------------ operands

    MEM = re.compile(r'(-?0x[0-9a-f]+)?\((%\w+)?(?:,(%\w+)(?:,(\d))?)?\)')

    @staticmethod
    def is_mem(op):
        return '(' in op or '%fs:' in op or '%gs:' in op or re.match(r'-?0x[0-9a-f]+$', op)

    @staticmethod
    def vec_number(op):
        m = re.match(r'%[xyz]mm(\d+)', op)
        return int(m[1]) if m else None

    @staticmethod
    def mask_number(op):
        m = re.match(r'%k(\d)$', op)
        return int(m[1]) if m else None

    def address(self, i, op, s):
        """What a memory operand's address is, as a pointer."""
        if '%fs:' in op or '%gs:' in op:
            return PTR_PUB
        m = self.MEM.match(re.sub(r'\{[^}]*\}', '', op))
        if not m:
            return PTR_PUB
        disp = int(m[1], 16) if m[1] else 0
        if m[2] == '%rip':
            return ('at', frozenset([i.next + disp]))
        if m[3] and self.vec_number(m[3]) is not None:
            self.complain(i, 'gathers or scatters')
            return PTR_SEC
        parts = [s.gpr[GPR[r[1:]][0]] for r in (m[2], m[3]) if r]
        if SEC in parts:
            self.complain(i, 'the address is secret')
            return PTR_SEC
        base = parts[0] if parts else PUB
        if len(parts) == 2:
            if base[0] not in ('ptr', 'stack', 'at') and parts[1][0] in ('ptr', 'stack', 'at'):
                base = parts[1]
            if base[0] == 'stack':
                return ('stack', base[1], None)
            if base[0] == 'at':  # of a pair of functions, one
                return ('at', frozenset(a + disp + o for a in base[1] for o in (0, 8)))
            return base if base[0] == 'ptr' else PTR_SEC
        if base[0] == 'at':
            return ('at', frozenset(a + disp for a in base[1]))
        if base[0] == 'stack':
            return ('stack', base[1], None if base[2] is None else base[2] + disp)
        return base if base[0] == 'ptr' else PTR_SEC

    @staticmethod
    def access(i, op):
        """Bytes that a memory operand stands for: as wide as the other operand; never too few."""
        for o in i.ops:
            o = o.split('{')[0]
            if o is not op and o.startswith('%') and o[1:] in GPR:
                return 1 if i.name.startswith('set') else GPR[o[1:]][1]
        wide = 0
        for o in i.ops:
            wide = max(wide, 64 if o.startswith('%zmm') else 32 if o.startswith('%ymm') else 16 if o.startswith('%xmm') else 0)
        if wide:
            return 8 if i.name in ('vmovq', 'movq', 'movlps', 'movhps', 'vmovlps', 'vmovhps') else wide
        return {'b': 1, 'w': 2, 'l': 4}.get(i.name[-1], 8)

    def load(self, i, op, s):
        a = self.address(i, op, s)
        if a == PTR_PUB:
            return PUB
        if a[0] == 'at':  # constants, and tables of functions
            return ('at', frozenset(self.relocs[p] for p in a[1])) if all(p in self.relocs for p in a[1]) else PUB
        if a[0] == 'stack' and a[2] is not None:
            return s.get(a[1], a[2], self.access(i, op))
        return SEC

    def store(self, i, op, s, value):
        a = self.address(i, op, s)
        if a[0] == 'stack' and a[2] is not None:
            s.put(a[1], a[2], value, self.access(i, op))
        elif a[0] == 'stack' and secret(value):
            # An element of an array: registers that were spilled are pointers, or known to be elsewhere.
            return
        elif (a == PTR_PUB or a[0] == 'at') and secret(value):
            self.complain(i, 'a secret goes where public values are')

    def read(self, i, op, s):
        if op.startswith('$'):
            return ('const', int(op[1:], 16))
        if op.startswith('%'):
            op = op.split('{')[0]
            if op[1:] in GPR:
                return s.gpr[GPR[op[1:]][0]]
            if (n := self.vec_number(op)) is not None:
                return s.vec[n]
            if (n := self.mask_number(op)) is not None:
                return s.mask[n]
        return self.load(i, op, s)

    def write(self, i, op, s, value, merge=False):
        masked = re.search(r'\{%k(\d)\}', op)
        zeroing = '{z}' in op
        if masked:
            if secret(s.mask[int(masked[1])]):
                if self.is_mem(op):
                    self.complain(i, 'a store under a secret mask')
                value = SEC
            merge = merge or not zeroing
        name = op.split('{')[0]
        if name.startswith('%') and name[1:] in GPR:
            wide, size = GPR[name[1:]]
            if size < 4 and not (size == 1 and merge is None):
                value = join(s.gpr[wide], value) if not isinstance(s.gpr[wide], tuple) or secret(value) else PUB
            s.gpr[wide] = value
        elif (n := self.vec_number(name)) is not None:
            level = SEC if secret(value) or (merge and secret(s.vec[n])) else PUB
            s.vec[n] = level
        elif (n := self.mask_number(name)) is not None:
            s.mask[n] = SEC if secret(value) else PUB
        else:
            self.store(i, name, s, value)

    # ------------------------------------------------------------ instructions

    JUMPS = re.compile(r'j(?!mp)\w+$')
    VECTOR = re.compile(r'(v|p(?!ush|op)|mov(dq|[au]p|h|l[ph]|ss|sd)|aes|and[np]|xorp|orp|punpck|shufp|insertps|extract|lddqu|gf2)')
    ARITH = re.compile(r'(add|sub|and|or|xor|adc|sbb|imul|mul|shl|shr|sar|sal|rol|ror|rorx|shlx|shrx|sarx|shld|shrd|andn|bzhi|bextr|'
                       r'blsi|blsr|blsmsk|popcnt|lzcnt|tzcnt|bsf|bsr|bts|btr|btc|mulx|adcx|adox|pdep|pext)[bwlq]?$')
    ONE = re.compile(r'(inc|dec|neg|not|bswap)[bwlq]?$')
    NOTHING = re.compile(r'(nop[wlq]?|endbr64|lfence|pause|vzeroupper|cld|int3|prefetch\w+|sfence|fnop)$')
    MOVE = re.compile(r'(mov[bwlq]?|movabs|movz\w+|movs[bwl][wlq]|movslq|movbe\w*)$')

    def arithmetic(self, i, s):
        name = self.ARITH.match(i.name)[1]
        values = [self.read(i, op, s) for op in i.ops]
        if len(values) == 1:
            values.append(('const', 1))
        same = len(i.ops) == 2 and i.ops[0] == i.ops[1] and i.ops[0].startswith('%')
        if name in ('xor', 'sub') and same:
            result = ('const', 0)
        elif name == 'sbb' and same:
            result = s.flags
        elif SEC in values or (name in ('adc', 'sbb') and secret(s.flags)):
            result = SEC
        else:
            result = PUB
            pointers = [v for v in values if v[0] in ('ptr', 'stack', 'at')]
            if len(pointers) == 1 and name in ('add', 'sub', 'and', 'or', 'adc'):
                result = pointers[0]
                if result[0] == 'at':  # an array of pairs of functions, one or the other
                    result = ('at', frozenset(a + o for a in result[1] for o in (0, 16)))
                if result[0] == 'stack':
                    result = self.move_stack(i, name, values, result)
        s.flags = SEC if secret(result) else PUB
        self.write(i, i.ops[-1], s, result)

    def move_stack(self, i, name, values, pointer):
        const = [v[1] for v in values if v[0] == 'const']
        if not const or name == 'and':  # aligned, or by an amount that is not known: a frame of its own
            return ('stack', f'{pointer[1]}@{i.at:x}', 0)
        by = const[0] - (1 << 64) if const[0] >> 63 else const[0]
        return ('stack', pointer[1], None if pointer[2] is None else pointer[2] + (by if name == 'add' else -by))

    def vector(self, i, s):
        n = i.name.lstrip('v')
        if n == 'zeroall':
            s.vec = [PUB] * 16 + s.vec[16:]
            return
        if 'gather' in n or 'scatter' in n:
            self.complain(i, 'gathers or scatters')
        if n.startswith(('ptest', 'testp', 'pcmpestr', 'pcmpistr', 'comis', 'ucomis')):
            s.flags = SEC if SEC in [self.read(i, op, s) for op in i.ops] else PUB
            return
        dst, srcs = i.ops[-1], i.ops[:-1]
        regs = [o for o in srcs if o.startswith('%')]
        zeroed = n.startswith(('pxor', 'xorp', 'psub', 'pandn')) and (
            (len(srcs) == 2 and srcs[0] == srcs[1] == srcs[-1] and regs) or (len(srcs) == 1 and srcs[0] == dst))
        if zeroed and '{' not in dst:
            value = PUB
        else:
            values = [self.read(i, op, s) for op in srcs if not op.startswith('$')]
            value = SEC if SEC in values else PUB
            # Not three operands: the destination takes part (SSE, ternary logic, permutations of two tables, merging).
            moves = re.match(r'(v?mov|vpbroadcast|vbroadcast|vpextr|pextr|vextract|lddqu|vpmovm2|vpabs|vpshuf[dhl])', i.name)
            takes_part = (not i.name.startswith('v') and not moves) or re.match(r'vp(ternlog|ermi2|ermt2|shldv|shrdv|dp)', i.name)
            if i.name in ('movlps', 'movhps', 'movlpd', 'movhpd', 'movss', 'movsd') and not self.is_mem(dst):
                takes_part = True
            if takes_part and not self.is_mem(dst):
                value = SEC if secret(value) or secret(self.read(i, dst, s)) else PUB
        if self.is_mem(dst):
            if '{%k' in dst and secret(s.mask[int(re.search(r'\{%k(\d)\}', dst)[1])]):
                self.complain(i, 'a store under a secret mask')
            self.store(i, dst.split('{')[0], s, value)
        else:
            self.write(i, dst, s, value)

    def step(self, i, s):
        """Change s as the instruction does. Return: where it may go on: addresses, 'call', 'ret' or 'end'."""
        n = i.name
        follow = [i.next]
        if self.NOTHING.match(n):
            if n.startswith('prefetch'):
                self.address(i, i.ops[0], s)
        elif n in ('hlt', 'ud2'):
            return 'end'
        elif n in ('ret', 'retq', 'repz'):
            return 'ret'
        elif n in ('jmp', 'jmpq'):
            return self.targets(i, s) or 'end'
        elif self.JUMPS.match(n):
            if secret(s.flags):
                self.complain(i, 'branches on a secret')
            if n in ('jrcxz', 'jecxz') and secret(s.gpr['rcx']):
                self.complain(i, 'branches on a secret')
            return [i.target, i.next]
        elif n in ('call', 'callq'):
            return 'call'
        elif n.startswith('push'):
            self.push(i, s, self.read(i, i.ops[0], s))
        elif n.startswith('pop') and not n.startswith('popcnt'):
            value = self.pop(i, s)
            self.write(i, i.ops[0], s, value)
        elif n in ('leave', 'leaveq'):
            s.gpr['rsp'] = s.gpr['rbp']
            s.gpr['rbp'] = self.pop(i, s)
        elif n.startswith('lea') and len(n) <= 4:
            a = self.lea(i, s)
            self.write(i, i.ops[1], s, a)
        elif n.startswith(('cmp', 'test')) and not n.startswith('cmpxchg') or re.match(r'bt[wlq]?$', n):
            s.flags = SEC if SEC in [self.read(i, op, s) for op in i.ops] else PUB
        elif n.startswith('cmov'):
            v = join(self.read(i, i.ops[0], s), self.read(i, i.ops[1], s))
            self.write(i, i.ops[1], s, SEC if secret(s.flags) else v)
        elif n.startswith('set'):
            self.write(i, i.ops[0], s, s.flags)
        elif n.startswith('xchg'):
            a, b = self.read(i, i.ops[0], s), self.read(i, i.ops[1], s)
            self.write(i, i.ops[0], s, b)
            self.write(i, i.ops[1], s, a)
        elif n in ('cltq', 'cwtl', 'cltd', 'cqto', 'cwtd', 'cdqe'):
            if n in ('cltd', 'cqto'):
                s.gpr['rdx'] = SEC if secret(s.gpr['rax']) else PUB
        elif n.startswith(('div', 'idiv')):
            if SEC in (self.read(i, i.ops[0], s), s.gpr['rax'], s.gpr['rdx']):
                self.complain(i, 'divides by, or of, a secret')
        elif n.startswith('rep_'):
            if secret(s.gpr['rcx']) or secret(s.gpr['rdi']) or (n.startswith('rep_movs') and secret(s.gpr['rsi'])):
                self.complain(i, 'length or address is secret')
        elif n.startswith('k'):
            self.mask_insn(i, s)
        elif self.MOVE.match(n) and not any(o.startswith(('%x', '%y', '%z')) for o in i.ops):
            self.write(i, i.ops[1], s, self.read(i, i.ops[0], s))
        elif n in ('movd', 'movq') or self.VECTOR.match(n):
            self.vector(i, s)
        elif n in ('mul', 'mulq', 'imul', 'imulq') and len(i.ops) == 1:
            v = SEC if SEC in (self.read(i, i.ops[0], s), s.gpr['rax']) else PUB
            s.gpr['rax'] = s.gpr['rdx'] = s.flags = v
        elif self.ARITH.match(n):
            self.arithmetic(i, s)
        elif self.ONE.match(n):
            v = self.read(i, i.ops[0], s)
            v = SEC if secret(v) else PUB
            if not n.startswith(('not', 'bswap')):
                s.flags = v
            self.write(i, i.ops[0], s, v)
        else:
            self.complain(i, 'an instruction that is not known here')
        return follow

    def targets(self, i, s):
        """Where a jump or call goes: where it says, or any of the functions that a table has there."""
        if i.target is not None:
            return [i.target]
        op = i.ops[0].lstrip('*')
        value = self.load(i, op, s) if self.is_mem(op) else self.read(i, op, s)
        if value[0] == 'at' and all(a in self.insns for a in value[1]):
            return sorted(value[1])
        self.complain(i, 'goes to where a secret says' if secret(value) else 'goes somewhere')
        return []

    def mask_insn(self, i, s):
        values = [self.read(i, op, s) for op in i.ops[:-1] if not op.startswith('$')]
        if i.name.startswith(('kortest', 'ktest')):
            s.flags = SEC if SEC in values + [self.read(i, i.ops[-1], s)] else PUB
            return
        same = len(i.ops) == 3 and i.ops[0] == i.ops[1] and i.name.startswith(('kxor', 'kxnor'))
        self.write(i, i.ops[-1], s, SEC if SEC in values and not same else PUB)

    def lea(self, i, s):
        m = self.MEM.match(i.ops[0])
        if not m:
            return PTR_PUB
        values = [s.gpr[GPR[r[1:]][0]] for r in (m[2], m[3]) if r and r != '%rip']
        if SEC in values:
            return SEC
        if m[2] == '%rip' or any(v[0] in ('ptr', 'stack', 'at') for v in values):
            if sum(v[0] in ('ptr', 'stack', 'at') for v in values) > 1:
                return PUB
            return self.address(i, i.ops[0], s)
        return PUB

    def push(self, i, s, value):
        sp = s.gpr['rsp']
        if sp[0] != 'stack' or sp[2] is None:
            self.complain(i, 'the stack pointer is lost')
            return
        sp = s.gpr['rsp'] = ('stack', sp[1], sp[2] - 8)
        s.put(sp[1], sp[2], value, 8)

    def pop(self, i, s):
        sp = s.gpr['rsp']
        if sp[0] != 'stack' or sp[2] is None:
            self.complain(i, 'the stack pointer is lost')
            return SEC
        s.gpr['rsp'] = ('stack', sp[1], sp[2] + 8)
        return s.get(sp[1], sp[2], 8)

    # ------------------------------------------------------------ paths

    def external(self, i, s, name):
        """A function of libc: takes no secret as pointer or length, whose time it may depend on."""
        if name.startswith('__stack_chk_fail'):
            return False
        if not re.match(r'(memcpy|memset|memmove|explicit_bzero)', name):
            self.complain(i, f'calls {name}, which is not known here')
        for r in ('rdi', 'rsi', 'rdx') if not name.startswith(('memset', 'explicit')) else ('rdi', 'rsi'):
            if secret(s.gpr[r]) and not (name.startswith('memset') and r == 'rsi'):
                self.complain(i, f'{name} of a secret length or address')
        dst = s.gpr['rdi']
        if dst == PTR_PUB and name.startswith('mem') and s.gpr['rsi'] not in (PTR_PUB, PUB) and s.gpr['rsi'][0] != 'const':
            self.complain(i, f'{name} of secrets to where public values are')
        for r in SCRATCH:
            s.gpr[r] = PUB
        if name.startswith('mem'):
            s.gpr['rax'] = dst
        s.vec, s.mask, s.flags = [SEC] * 32, [SEC] * 8, SEC
        return True

    def run(self, entry, args):
        s = State()
        s.gpr = {r: PUB for r, size in GPR.values()}
        s.gpr['rsp'] = ('stack', 'entry', 0)
        s.vec, s.mask, s.flags, s.bytes, s.spilled = [SEC] * 32, [SEC] * 8, SEC, {}, {}
        for n, value in enumerate(args):
            if n < 6:
                s.gpr[ARGS[n]] = value
            else:
                s.put('entry', 8 * (n - 5), value, 8)
        states = {(entry, ()): s}
        work = [(entry, ())]
        while work:
            at, calls = work.pop()
            s = states[at, calls].copy()
            while (i := self.insns.get(at)) is not None:
                self.seen.add(at)
                where = self.step(i, s)
                if len(where) != 1 or where[0] in self.leaders:
                    break
                at = where[0]
            if i is None:
                self.complaints.setdefault(at, f'{at:x}: no code here')
                continue
            goes = []
            if where == 'call':
                where = self.targets(i, s)
                name = self.symbol.get(where[0], '') if where else ''
                if '@plt' in name:
                    if self.external(i, s, name):
                        goes = [(i.next, calls)]
                elif len(calls) > 6:
                    self.complain(i, 'calls too deep')
                else:
                    self.push(i, s, PUB)
                    goes = [(a, calls + (i.next,)) for a in where]
            elif where == 'ret':
                if calls:
                    self.pop(i, s)
                    goes = [(calls[-1], calls[:-1])]
            elif where != 'end':
                goes = [(a, calls) for a in where]
                # A jump to a function of libc in place of a call and a return.
                if i.name.startswith('jmp') and '@plt' in self.symbol.get(i.target, ''):
                    goes = [(calls[-1], calls[:-1])] if self.external(i, s, self.symbol[i.target]) and calls else []
            for to in goes:
                if to not in states:
                    states[to] = s if to is goes[-1] else s.copy()
                    work.append(to)
                elif (grown := join_states(states[to], s)) is not None:
                    states[to] = grown
                    work.append(to)


def features_of(i):
    """What an instruction wants of the processor, beyond x86-64, as SITS_CPU_* names it."""
    wide = any(o.startswith(('%ymm', '%zmm')) for o in i.ops)
    name = i.name
    if re.match(r'vpmadd52|vpcompress[bw]|vpexpand[bw]|vpsh[lr]d|vpopcnt|vpshufbitqmb|vpdp|movbe', name) or (
            name.startswith('vaes') and wide):
        yield 'one that no core asks for'
    if re.search(r'%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])', i.text):
        yield 'AVX512'
    if name.startswith('v'):
        yield 'AVX2'
    if 'gf2p8' in name:
        yield 'GFNI'
    if 'pclmul' in name:
        yield 'VPCLMUL' if wide else 'PCLMUL'
    if re.match(r'v?aes', name):
        yield 'AESNI'
    if re.match(r'(bzhi|shlx|shrx|sarx|rorx|mulx|pdep|pext|andn|bextr|blsi|blsr|blsmsk|tzcnt)', name):
        yield 'BMI'


def check_needs(program, insns, seen, address):
    """Does struct sits_sm4_core.needs, the word behind the name, have all that the core's instructions want?"""
    bits = {m[1]: int(m[2]) for m in re.finditer(r'#define SITS_CPU_(\w+)\s+\(1u << (\d+)\)', open('crypto/sm4_core.h').read())}
    dump = subprocess.run(['objdump', '-s', f'--start-address={address + 8:#x}', f'--stop-address={address + 12:#x}', program],
                          check=True, capture_output=True, text=True).stdout
    needs = int.from_bytes(bytes.fromhex(re.search(r'^ [0-9a-f]+ ([0-9a-f]{8})', dump, re.M)[1]), 'little')
    wants = {}
    for a in seen:
        for f in features_of(insns[a]):
            wants.setdefault(f, insns[a])
    return [f'{i.at:x}: {i.text}: wants {f}, which the core does not ask for' for f, i in wants.items()
            if f not in bits or not needs >> bits[f] & 1]


SELF_TEST = r'''
	.globl bad_branch, bad_index, bad_gather, bad_store, bad_divide, good
	.text
bad_branch:	movq (%rdi), %rax; testb $1, %al; jne 1f; nop; 1: ret
bad_index:	movzbl (%rsi), %eax; movzbl (%rdi,%rax), %ecx; ret
bad_gather:	vmovdqu (%rdi), %ymm1; vpgatherdd %ymm0, (%rsi,%ymm1,4), %ymm2; ret
bad_store:	vmovdqu (%rdi), %xmm0; vpxor %xmm0, %xmm1, %xmm2; vmovdqu %xmm2, (%rsi); ret
bad_divide:	movq (%rdi), %rax; xorl %edx, %edx; divq %rcx; ret
good:	push %rbx; sub $64, %rsp; mov (%rsi), %rbx; bswap %rbx; mov %rbx, 8(%rsp); vmovdqu (%rdi), %xmm0; vmovdqu %xmm0, 32(%rsp)
	mov 8(%rsp), %rax; add $1, %rax; jc 1f; nop; 1: movq 32(%rsp), %rcx; xor %rcx, (%rdx); add $64, %rsp; pop %rbx; ret
	.section .note.GNU-stack, "", @progbits
'''


def self_test(tmp):
    """The checker sees what it is to see, and nothing else."""
    source, program = f'{tmp}/t.S', f'{tmp}/t'
    open(source, 'w').write(SELF_TEST.replace('good:', '.globl main\nmain:\ngood:'))
    subprocess.run(['gcc', '-o', program, source], check=True)
    insns, symbol = disassemble(program)
    relocs = {}
    at = {name: a for a, name in symbol.items()}
    at['good'] = at.get('good', at.get('main'))
    got = {}
    for name in ('bad_branch', 'bad_index', 'bad_gather', 'bad_store', 'bad_divide', 'good'):
        c = Checker(insns, symbol, relocs)
        c.run(at[name], (PTR_SEC, PTR_PUB, PTR_SEC, PUB) if name in ('good', 'bad_store') else (PTR_SEC, PTR_SEC, PUB, PUB))
        got[name] = list(c.complaints.values())
    wrong = [n for n, what in got.items() if bool(what) != n.startswith('bad')]
    for n in wrong:
        print(f'# self-test {n}: {got[n]}')
    return not wrong


def main():
    import tempfile

    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ.get('BUILD', 'build/gcc'),
                                                                 'tests/unit/crypto/sm4_ct_test')
    if os.uname().machine != 'x86_64':
        print('1..0 # SKIP the vector cores are for x86-64')
        return 0
    insns, symbol = disassemble(program)
    results = []
    with tempfile.TemporaryDirectory() as tmp:
        results.append(('the checker tells bad code from good', self_test(tmp), []))
    syms, relocs, tables = table_entries(program)
    for core, functions in tables:
        seen = set()
        for name, entry, args in functions:
            c = Checker(insns, symbol, relocs)
            c.run(entry, args)
            lines = [f'{len(c.seen)} instructions'] + list(c.complaints.values())[:20]
            results.append((f'{core}: {name}', not c.complaints and len(c.seen) > 5, lines))
            seen |= c.seen
        missing = check_needs(program, insns, seen, syms[core])
        results.append((f'{core}: asks for what its instructions want', not missing, missing))
    print(f'1..{len(results)}')
    for n, (what, ok, lines) in enumerate(results, 1):
        for line in lines:
            print(f'# {line}')
        print(f'{"ok" if ok else "not ok"} {n} - {what}')
    return 0 if all(ok for _, ok, _ in results) else 1


sys.exit(main())
