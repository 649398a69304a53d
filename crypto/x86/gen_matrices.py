#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Derive the affine maps that the vector cores of SM4 use, and print crypto/x86/sm4_affine.h.

The S-box of GB/T 32907-2016 is S(x) = A inv(A x + d3) + d3 over F = GF(2)[t]/(t^8+t^7+t^6+t^5+t^4+t^2+1), where A is the
circulant matrix whose first row is d3 and inv(0) = 0. Processors invert in the field of AES, G = GF(2)[t]/(t^8+t^4+t^3+t+1).
With an isomorphism f: F -> G (linear over GF(2); there are eight, one for each root of F's polynomial in G)

    S(x) = A2 inv_G(A1 x + C1) + d3,        A1 = f A,   C1 = f(d3),   A2 = A f^-1

The state can stay in the domain Y = A1 X all the time: then the S-box and the linear transform L that follows, both conjugated by
A1, need two maps of each inverted byte alone. L(B) = B + B<<<2 + B<<<10 + B<<<18 + B<<<24 (+ is XOR), so that byte j of L (0 the
most significant, numbers modulo 4) is

    (1 + SHL2) B_j  +  ROL2 B_(j+1)  +  ROL2 B_(j+2)  +  (1 + SHR6) B_(j+3),       1 + SHR6 = (1 + SHL2) + ROL2

and with U = A1 (1 + SHL2) A2, R = A1 ROL2 A2, u_j = U inv_G(y_j), r_j = R inv_G(y_j)

    A1 L(S(x))_j = u_j + u_(j-1) + r_(j+1) + r_(j+2) + r_(j+3) + A1 ROL2 d3

The constant goes with R, of which there are three; C1 is added to the round keys.

Everything is checked against the definition: maps for all bytes, and the whole cipher in this form against the standard's example.
"""

SM4_POLY, AES_POLY, CONST = 0x1F5, 0x11B, 0xD3



def mul(a, b, poly):
    r = 0
    while b:
        if b & 1:
            r ^= a
        a <<= 1
        if a & 256:
            a ^= poly
        b >>= 1
    return r


def power(a, n, poly):
    r = 1
    for _ in range(n):
        r = mul(r, a, poly)
    return r


def evaluate(poly, x):
    """The polynomial (bit i for t^i) at x in the field of AES."""
    r = 0
    for i in range(9):
        if poly >> i & 1:
            r ^= power(x, i, AES_POLY)
    return r


def inverses(poly):
    return [power(x, 254, poly) for x in range(256)]


def parity(x):
    return bin(x).count('1') & 1


class Map:
    """A linear map of bytes: its eight columns, the images of 1, 2, 4 .. 128."""

    def __init__(self, fn):
        self.columns = [fn(1 << i) for i in range(8)]

    def __call__(self, x):
        r = 0
        for i in range(8):
            if x >> i & 1:
                r ^= self.columns[i]
        return r

    def __mul__(self, other):
        return Map(lambda x: self(other(x)))

    def inverse(self):
        table = {self(x): x for x in range(256)}
        assert len(table) == 256
        return Map(lambda x: table[x])

    def gfni(self):
        """The operand of GF2P8AFFINEQB: byte 7 - i is row i, whose parity under x is bit i of the product."""
        rows = [sum((self.columns[i] >> row & 1) << i for i in range(8)) for row in range(8)]
        return sum(rows[i] << (8 * (7 - i)) for i in range(8))


def rol(x, n, bits=8):
    return (x << n | x >> (bits - n)) & ((1 << bits) - 1)


# The definition.
A_ROWS = [rol(CONST, 8 - i) if i else CONST for i in range(8)]      # row i, for bit 7 - i
A = Map(lambda x: sum(parity(A_ROWS[i] & x) << (7 - i) for i in range(8)))
INV_SM4, INV_AES = inverses(SM4_POLY), inverses(AES_POLY)
SBOX = [A(INV_SM4[A(x) ^ CONST]) ^ CONST for x in range(256)]

# The isomorphism: t becomes the smallest of the eight roots. Any would do.
ROOT = min(x for x in range(256) if evaluate(SM4_POLY, x) == 0)
POWERS = [power(ROOT, i, AES_POLY) for i in range(8)]
ISO = Map(lambda x: POWERS[x.bit_length() - 1])
A1, C1 = ISO * A, ISO(CONST)
A1_INV = A1.inverse()
A2 = A * ISO.inverse()
ONE_SHL2 = Map(lambda x: x ^ (x << 2 & 0xFF))
ROL2 = Map(lambda x: rol(x, 2))
U = A1 * ONE_SHL2 * A2
R = A1 * ROL2 * A2
CR = A1(rol(CONST, 2))

# AESENCLAST adds AES's own affine map after inverting: P inv(x) + 63. What is left for afterwards is A2 P^-1, with its constant.
AES_P = Map(lambda x: x ^ rol(x, 1) ^ rol(x, 2) ^ rol(x, 3) ^ rol(x, 4))
A2_AES = A2 * AES_P.inverse()
C2_AES = A2_AES(0x63) ^ CONST

# GHASH numbers the bits of a byte from the most significant.
BITREV = Map(lambda x: int(format(x, '08b')[::-1], 2))


def linear_l(b):
    return b ^ rol(b, 2, 32) ^ rol(b, 10, 32) ^ rol(b, 18, 32) ^ rol(b, 24, 32)


def tau(x):
    return sum(SBOX[x >> s & 255] << s for s in (24, 16, 8, 0))


def schedule(key):
    """Source: GB/T 32907-2016, clause 7.3."""
    k = [int.from_bytes(key[4 * i:4 * i + 4], 'big') ^ fk
         for i, fk in enumerate((0xA3B1BAC6, 0x56AA3350, 0x677D9197, 0xB27022DC))]
    for i in range(32):
        ck = sum((7 * (4 * i + j) & 255) << (24 - 8 * j) for j in range(4))
        b = tau(k[i + 1] ^ k[i + 2] ^ k[i + 3] ^ ck)
        k.append(k[i] ^ b ^ rol(b, 13, 32) ^ rol(b, 23, 32))
    return k[4:]


def encrypt(key, block):
    """As the standard has it."""
    x = [int.from_bytes(block[4 * i:4 * i + 4], 'big') for i in range(4)]
    for rk in schedule(key):
        x.append(x[-4] ^ linear_l(tau(x[-3] ^ x[-2] ^ x[-1] ^ rk)))
    return b''.join(w.to_bytes(4, 'big') for w in x[:-5:-1])


def encrypt_affine(key, block):
    """As the GFNI cores have it."""
    y = [[A1(b) for b in block[4 * i:4 * i + 4]] for i in range(4)]
    for rk in schedule(key):
        k = [A1(b) ^ C1 for b in rk.to_bytes(4, 'big')]
        z = [INV_AES[y[-3][j] ^ y[-2][j] ^ y[-1][j] ^ k[j]] for j in range(4)]
        u, r = [U(b) for b in z], [R(b) ^ CR for b in z]
        y.append([y[-4][j] ^ u[j] ^ u[j - 1] ^ r[(j + 1) % 4] ^ r[(j + 2) % 4] ^ r[(j + 3) % 4] for j in range(4)])
    return bytes(A1_INV(b) for w in y[:-5:-1] for b in w)


def check():
    for x in range(256):
        assert SBOX[x] == A2(INV_AES[A1(x) ^ C1]) ^ CONST
        assert SBOX[x] == A2_AES(AES_P(INV_AES[A1(x) ^ C1]) ^ 0x63) ^ C2_AES
        assert A1_INV(A1(x)) == x
    key = bytes.fromhex('0123456789abcdeffedcba9876543210')
    # GB/T 32907-2016, Example 1.
    assert encrypt(key, key).hex() == '681edf34d206965e86b3e94f536e4246'
    for i in range(50):
        assert encrypt(key, key) == encrypt_affine(key, key)
        key = encrypt(key, key)


def main():
    check()
    print('''/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_affine.h - the affine maps of the vector cores, as GF2P8AFFINEQB wants them; docs/sm4.md says what they are.
 *
 * Generated by gen_matrices.py, which derives and checks them: change that.
 */
#ifndef SITS_CRYPTO_X86_SM4_AFFINE_H
#define SITS_CRYPTO_X86_SM4_AFFINE_H
''')
    for name, value, what in (
            ('A1', A1.gfni(), 'into the domain; its constant, for the round keys: C1'),
            ('C1', C1, None),
            ('A1_INV', A1_INV.gfni(), 'and back'),
            ('A2', A2.gfni(), 'after the inversion; its constant: C2'),
            ('C2', CONST, None),
            ('U', U.gfni(), 'A1 (1 + SHL2) A2'),
            ('R', R.gfni(), 'A1 ROL2 A2; its constant: CR'),
            ('CR', CR, None),
            ('A2_AES', A2_AES.gfni(), "after AESENCLAST, what AES's own affine map leaves over; its constant: C2_AES"),
            ('C2_AES', C2_AES, None),
            ('BITREV', BITREV.gfni(), 'bits of a byte in reverse')):
        digits = '0x%016x' if what else '0x%02x'
        print('#define SITS_AFFINE_%s\t%s%s%s' % (name, '\t' if len(name) < 4 else '', digits % value,
                                                  '\t/* %s */' % what if what else ''))
    print('\n#endif')


if __name__ == '__main__':
    main()
