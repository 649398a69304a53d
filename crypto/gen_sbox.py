#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Derive the S-box circuit of SM4 and print crypto/sm4_sbox.h.

The S-box of GB/T 32907-2016 is S(x) = A inv(A x + d3) + d3 over GF(2)[t]/(t^8+t^7+t^6+t^5+t^4+t^2+1),
where A is the circulant matrix whose first row is d3 and inv(0) = 0. The inversion is done in the tower
GF(((2^2)^2)^2) with a normal basis at each level; A and the change of basis melt into one linear map at
either end, and both constants d3 move into the round keys (see sm4_bitslice.h), so that the circuit
computes T(y) = A inv(A y): S(x) = T(x + A^-1 d3) + d3.

    y (8 bits) -> 22 linear forms -> norm N in GF(16) -> E = 1/N -> 18 products of E -> 8 bits

Without arguments the best bases known are used (114 gates, from a long search). --search tries all bases
roughly and the 15 best of them thoroughly, which finds 115 gates in two minutes of CPU time. Either way the
result is checked for all 256 inputs before it is printed.
"""
import random
import sys

POLY, CONST = 0x1F5, 0xD3

# The nine linear forms over four bits (two elements of GF(4)) that a Karatsuba product in GF(16) needs.
KARATSUBA = [8, 4, 12, 2, 1, 3, 10, 5, 15]


def mul(a, b):
    r = 0
    while b:
        if b & 1:
            r ^= a
        a <<= 1
        if a & 256:
            a ^= POLY
        b >>= 1
    return r


def power(a, n):
    r = 1
    while n:
        if n & 1:
            r = mul(r, a)
        a = mul(a, a)
        n >>= 1
    return r


PARITY = [bin(x).count('1') & 1 for x in range(256)]
INV = [power(x, 254) for x in range(256)]


def affine_matrix():
    rows, r = [], CONST
    for _ in range(8):
        rows.append(r)
        r = (r >> 1) | ((r & 1) << 7)
    return [sum(PARITY[row & x] << (7 - i) for i, row in enumerate(rows)) for x in range(256)]


A = affine_matrix()
SBOX = [A[INV[A[x] ^ CONST]] ^ CONST for x in range(256)]


def truth(fn, n):
    return sum(1 << x for x in range(n) if fn(x))


def solve(columns, target):
    """The set of columns (as a mask) whose sum is target; None if there is none."""
    basis = {}
    for i, c in enumerate(columns):
        m = 1 << i
        while c:
            p = c.bit_length() - 1
            if p not in basis:
                basis[p] = (c, m)
                break
            c, m = c ^ basis[p][0], m ^ basis[p][1]
    m = 0
    while target:
        p = target.bit_length() - 1
        if p not in basis:
            return None
        target, m = target ^ basis[p][0], m ^ basis[p][1]
    return m


def tower(w, z, y):
    """Linear maps of the inversion for normal bases [w^2,w], [z^4,z], [y^16,y]; None if they are none."""
    g4 = [(mul(w, w) if v & 2 else 0) ^ (w if v & 1 else 0) for v in range(4)]
    g16 = [mul(g4[v >> 2], power(z, 4)) ^ mul(g4[v & 3], z) for v in range(16)]
    g256 = [mul(g16[v >> 4], power(y, 16)) ^ mul(g16[v & 15], y) for v in range(256)]
    if len(set(g16)) < 16 or len(set(g256)) < 256:
        return None
    c16 = {x: v for v, x in enumerate(g16)}
    c256 = {x: v for v, x in enumerate(g256)}
    coord = [c256[A[x]] for x in range(256)]

    def form(mask):		# a form over the coordinates as a form over the input bits
        return sum(1 << i for i in range(8) if PARITY[coord[1 << i] & mask])

    hi = [form(m << 4) for m in KARATSUBA]
    lo = [form(m) for m in KARATSUBA]
    # (a1 y^16 + a0 y)^17 / tr^2 = nu (a1 + a0)^2 + a1 a0 with tr = y + y^16, nu = y^17 / tr^2
    tr2 = power(y ^ power(y, 16), 2)
    nu = mul(power(y, 17), INV[tr2])
    products = [truth(lambda v: PARITY[(v >> 4) & m] & PARITY[v & m], 256) for m in KARATSUBA]
    product = [solve(products, truth(lambda v: (c16[mul(g16[v >> 4], g16[v & 15])] >> bit) & 1, 256))
               for bit in range(4)]
    linear = []
    for bit in range(4):
        r = 0
        for i in range(8):
            s = g16[coord[1 << i] >> 4] ^ g16[coord[1 << i] & 15]
            r |= ((c16[mul(nu, mul(s, s))] >> bit) & 1) << i
        linear.append(r)
    inverse = [c16[INV[g16[v]]] for v in range(16)]
    # 1/(a1 y^16 + a0 y) = E (a0 y^16 + a1 y) / tr^2, then A
    outs = []
    for k in range(8):
        m = 0
        for bit in range(4):
            from_hi = A[mul(mul(g16[1 << bit], y), INV[tr2])]
            from_lo = A[mul(mul(g16[1 << bit], power(y, 16)), INV[tr2])]
            m ^= product[bit] if (from_hi >> k) & 1 else 0
            m ^= product[bit] << 9 if (from_lo >> k) & 1 else 0
        outs.append(m)
    return {'hi': hi, 'lo': lo, 'linear': linear, 'product': product, 'inverse': inverse, 'outs': outs}


def share(targets, nr_in, rng):
    """Paar's greedy algorithm: XOR gates for linear forms. Return: gates (i, j), the wire of each target."""
    rows, n, gates = list(targets), nr_in, []
    while True:
        cols = [sum(1 << k for k, r in enumerate(rows) if (r >> j) & 1) for j in range(n)]
        best, pairs = 0, []
        for i in range(n):
            for j in range(i + 1, n):
                k = bin(cols[i] & cols[j]).count('1')
                if k > best:
                    best, pairs = k, [(i, j)]
                elif k == best and k:
                    pairs.append((i, j))
        if not best:
            return gates, [r.bit_length() - 1 for r in rows]
        i, j = rng.choice(pairs)
        both = 1 << i | 1 << j
        rows = [r ^ (both | 1 << n) if r & both == both else r for r in rows]
        gates.append((i, j))
        n += 1


def best_share(targets, nr_in, tries, seed):
    rng = random.Random(seed)
    return min((share(targets, nr_in, rng) for _ in range(tries)), key=lambda r: len(r[0]))


def gates4(table, rng, limit):
    """A small circuit for a function of 4 bits, after Kwan's bitslice-DES search: use a wire that fits
    under the mask of inputs that still matter, else one or two new gates, else split on an input bit."""
    full = 0xffff
    ins = [truth(lambda v: (v >> b) & 1, 16) for b in range(4)]
    outs = [truth(lambda v: (table[v] >> b) & 1, 16) for b in range(4)]

    def pair(i, a, j, b):
        return ((a ^ b, '^', i, j), (a & b, '&', i, j), (a | b, '|', i, j),
                (~a & b & full, '~&', i, j), (~b & a & full, '~&', j, i))

    def create(target, mask, wires, bits, room):
        target &= mask
        n = len(wires)
        for i in range(n - 1, -1, -1):
            if wires[i][0] & mask == target:
                return i, wires
        if n + 1 > room:
            return None
        order = rng.sample(range(n), n)
        pairs = [g for x in range(n) for y in range(x)
                 for g in pair(order[x], wires[order[x]][0], order[y], wires[order[y]][0])]
        for g in pairs:
            if g[0] & mask == target:
                return n, wires + [g]
        if n + 2 > room:
            return None
        for g in pairs:
            for k in order:
                for h in pair(n, g[0], k, wires[k][0]):
                    if h[0] & mask == target:
                        return n + 1, wires + [g, h]
        best = None
        for b in bits if n + 4 <= room else []:
            rest, bit = [x for x in bits if x != b], wires[b][0]
            for cover, op in ((bit, '&'), (~bit & full, '~&')):
                left = (room if best is None else len(best[1]) - 1) - 2
                r = create(target, mask & ~cover, wires, rest, left)
                if not r:
                    continue
                base, w = r
                r = create(target ^ w[base][0], mask & cover, w, rest, left)
                if not r:
                    continue
                diff, w = r
                v = w[diff][0] & cover
                w = w + [(v, op, b, diff), (v ^ w[base][0], '^', len(w), base)]
                best = (len(w) - 1, w)
        return best

    wires, where = [(t, None, b, b) for b, t in enumerate(ins)], [None] * 4
    for o in rng.sample(range(4), 4):
        r = create(outs[o], full, wires, rng.sample(range(4), 4), 4 + limit)
        if not r:
            return None
        where[o], wires = r
    return where, wires


def best_gates4(table, tries, seed):
    rng, best = random.Random(seed), None
    for _ in range(tries):
        r = gates4(table, rng, 30 if best is None else len(best[1]) - 5)
        best = r or best
    return best


def search():
    elements16 = [x for x in range(256) if power(x, 16) == x]
    elements4 = [x for x in elements16 if power(x, 4) == x]
    w = [x for x in elements4 if x > 1][0]
    rng, found = random.Random(1), []
    for z in elements16:
        for y in range(256):
            t = tower(w, z, y) if z not in elements4 and y not in elements16 else None
            if t:
                cost = len(share(unique(t), 8, rng)[0]) + len(share(t['outs'], 18, rng)[0])
                found.append((cost, w, z, y))
    best = min((circuit(*f[1:]) for f in sorted(found)[:15]), key=lambda c: len(c.code))
    return best


def unique(t):
    return list(dict.fromkeys(t['hi'] + t['lo'] + t['linear']))


class circuit:
    """The whole circuit as lines of (name, op, left, right)."""

    def __init__(self, w, z, y):
        t = tower(w, z, y)
        self.bases, self.code = (w, z, y), []
        forms = unique(t)
        gates, at = best_share(forms, 8, 400, 1)
        wires = [f'x{i}' for i in range(8)]
        for i, j in gates:
            wires.append(self.emit('t', '^', wires[i], wires[j]))
        name = {f: wires[a] for f, a in zip(forms, at)}
        hi, lo = [name[f] for f in t['hi']], [name[f] for f in t['lo']]
        wires = [self.emit('m', '&', a, b) for a, b in zip(hi, lo)] + [name[f] for f in t['linear']]
        gates, at = best_share([p | 1 << (9 + i) for i, p in enumerate(t['product'])], 13, 400, 1)
        for i, j in gates:
            wires.append(self.emit('n', '^', wires[i], wires[j]))
        wires = [wires[a] for a in at]
        where, net = best_gates4(t['inverse'], 200, 3)
        for _, op, i, j in net[4:]:
            wires.append(self.emit('e', op, wires[i], wires[j]))
        e = [None] * 9
        for form, bit in ((8, 3), (4, 2), (2, 1), (1, 0)):
            e[KARATSUBA.index(form)] = wires[where[bit]]
        for k, (i, j) in ((2, (0, 1)), (5, (3, 4)), (6, (0, 3)), (7, (1, 4)), (8, (2, 5))):
            e[k] = self.emit('e', '^', e[i], e[j])
        wires = [self.emit('p', '&', a, b) for a, b in zip(e + e, hi + lo)]
        gates, at = best_share(t['outs'], 18, 400, 1)
        for i, j in gates:
            wires.append(self.emit('q', '^', wires[i], wires[j]))
        self.outs = [wires[a] for a in at]
        self.check()

    def emit(self, kind, op, a, b):
        name = f'{kind}{sum(1 for c in self.code if c[0][0] == kind)}'
        self.code.append((name, op, a, b))
        return name

    def check(self):
        shift = next(x for x in range(256) if A[x] == CONST)
        for x in range(256):
            v = {f'x{i}': ((x ^ shift) >> i) & 1 for i in range(8)}
            for name, op, a, b in self.code:
                a, b = v[a], v[b]
                v[name] = {'^': a ^ b, '&': a & b, '|': a | b, '~&': ~a & b & 1}[op]
            y = sum(v[o] << i for i, o in enumerate(self.outs)) ^ CONST
            assert y == SBOX[x], x

    def header(self):
        ops = {k: sum(1 for c in self.code if c[1] in k.split()) for k in ('^', '& | ~&')}
        shift = next(x for x in range(256) if A[x] == CONST)
        out = [f'''/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_sbox.h - the S-box of SM4 as a circuit; printed by gen_sbox.py, not edited by hand.
 *
 * Computes T on bit planes, where S(x) = T(x ^ 0x{shift:02x}) ^ 0x{CONST:02x}. Plane i holds bit i (0: least
 * significant) of many bytes. Bases: w 0x{self.bases[0]:02x}, z 0x{self.bases[1]:02x}, y 0x{self.bases[2]:02x}. {ops['^']} XOR, {ops['& | ~&']} AND, ANDN or OR.
 *
 * Included by sm4_bitslice.h, which has the type `word`.
 */
#define SITS_SM4_SBOX_IN 0x{shift:02x}
#define SITS_SM4_SBOX_OUT 0x{CONST:02x}

static inline __attribute__((always_inline)) void sm4_sbox(word x[8])
{{''']
        for i in range(8):
            out.append(f'\tconst word x{i} = x[{i}];')
        for name, op, a, b in self.code:
            expr = f'~{a} & {b}' if op == '~&' else f'{a} {op} {b}'
            out.append(f'\tconst word {name} = {expr};')
        out.append('')
        out += [f'\tx[{i}] = {o};' for i, o in enumerate(self.outs)]
        out.append('}')
        return '\n'.join(out)


if __name__ == '__main__':
    best = search() if '--search' in sys.argv[1:] else circuit(92, 42, 245)
    print(best.header())
