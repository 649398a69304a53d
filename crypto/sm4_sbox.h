/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_sbox.h - the S-box of SM4 as a circuit; printed by gen_sbox.py, not edited by hand.
 *
 * Computes T on bit planes, where S(x) = T(x ^ 0x75) ^ 0xd3. Plane i holds bit i (0: least
 * significant) of many bytes. Bases: w 0x5c, z 0x2a, y 0xf5. 79 XOR, 35 AND, ANDN or OR.
 *
 * Included by sm4_bitslice.h, which has the type `word`.
 */
#define SITS_SM4_SBOX_IN 0x75
#define SITS_SM4_SBOX_OUT 0xd3

static inline __attribute__((always_inline)) void sm4_sbox(word x[8])
{
	const word x0 = x[0];
	const word x1 = x[1];
	const word x2 = x[2];
	const word x3 = x[3];
	const word x4 = x[4];
	const word x5 = x[5];
	const word x6 = x[6];
	const word x7 = x[7];
	const word t0 = x3 ^ x5;
	const word t1 = x4 ^ x7;
	const word t2 = x0 ^ t1;
	const word t3 = x0 ^ t0;
	const word t4 = x1 ^ x5;
	const word t5 = x2 ^ x6;
	const word t6 = x7 ^ t0;
	const word t7 = x3 ^ t2;
	const word t8 = x2 ^ t2;
	const word t9 = x2 ^ x4;
	const word t10 = x1 ^ t5;
	const word t11 = x1 ^ x3;
	const word t12 = t9 ^ t11;
	const word t13 = x0 ^ t4;
	const word t14 = x2 ^ t6;
	const word t15 = x6 ^ t0;
	const word t16 = x7 ^ t3;
	const word t17 = x5 ^ t1;
	const word t18 = t4 ^ t8;
	const word t19 = t1 ^ t4;
	const word t20 = t3 ^ t9;
	const word t21 = t3 ^ t5;
	const word t22 = t7 ^ t10;
	const word t23 = x1 ^ t2;
	const word m0 = t20 & x1;
	const word m1 = t6 & t5;
	const word m2 = t8 & t10;
	const word m3 = t13 & t17;
	const word m4 = x0 & t3;
	const word m5 = t4 & t7;
	const word m6 = t12 & t19;
	const word m7 = t16 & t21;
	const word m8 = t18 & t22;
	const word n0 = m4 ^ m6;
	const word n1 = m1 ^ m6;
	const word n2 = m3 ^ n0;
	const word n3 = m2 ^ m7;
	const word n4 = t14 ^ n1;
	const word n5 = t15 ^ n1;
	const word n6 = m8 ^ t23;
	const word n7 = n3 ^ n4;
	const word n8 = m7 ^ n0;
	const word n9 = n2 ^ n6;
	const word n10 = m0 ^ n5;
	const word n11 = m5 ^ t0;
	const word n12 = n8 ^ n11;
	const word n13 = m8 ^ n10;
	const word e0 = n12 & n7;
	const word e1 = e0 | n13;
	const word e2 = n13 ^ n7;
	const word e3 = n9 & e2;
	const word e4 = e3 ^ e1;
	const word e5 = e0 | n9;
	const word e6 = n12 ^ n9;
	const word e7 = n13 & e6;
	const word e8 = e7 ^ e5;
	const word e9 = ~e7 & n7;
	const word e10 = n9 & n13;
	const word e11 = e10 ^ e9;
	const word e12 = ~e3 & n12;
	const word e13 = e12 ^ e10;
	const word e14 = e8 ^ e13;
	const word e15 = e4 ^ e11;
	const word e16 = e8 ^ e4;
	const word e17 = e13 ^ e11;
	const word e18 = e14 ^ e15;
	const word p0 = e8 & t20;
	const word p1 = e13 & t6;
	const word p2 = e14 & t8;
	const word p3 = e4 & t13;
	const word p4 = e11 & x0;
	const word p5 = e15 & t4;
	const word p6 = e16 & t12;
	const word p7 = e17 & t16;
	const word p8 = e18 & t18;
	const word p9 = e8 & x1;
	const word p10 = e13 & t5;
	const word p11 = e14 & t10;
	const word p12 = e4 & t17;
	const word p13 = e11 & t3;
	const word p14 = e15 & t7;
	const word p15 = e16 & t19;
	const word p16 = e17 & t21;
	const word p17 = e18 & t22;
	const word q0 = p12 ^ p17;
	const word q1 = p10 ^ p13;
	const word q2 = p11 ^ q1;
	const word q3 = p2 ^ q0;
	const word q4 = p1 ^ p4;
	const word q5 = p5 ^ q4;
	const word q6 = p13 ^ q3;
	const word q7 = p8 ^ q2;
	const word q8 = p14 ^ q7;
	const word q9 = p16 ^ q2;
	const word q10 = p14 ^ p16;
	const word q11 = p15 ^ q6;
	const word q12 = p0 ^ p7;
	const word q13 = q3 ^ q9;
	const word q14 = q5 ^ q12;
	const word q15 = p9 ^ q10;
	const word q16 = p4 ^ p6;
	const word q17 = q1 ^ q15;
	const word q18 = p1 ^ p6;
	const word q19 = p7 ^ q18;
	const word q20 = p3 ^ q8;
	const word q21 = q8 ^ q14;
	const word q22 = p17 ^ q17;
	const word q23 = p8 ^ q11;
	const word q24 = q16 ^ q20;
	const word q25 = q5 ^ q11;
	const word q26 = q13 ^ q19;
	const word q27 = q12 ^ q23;
	const word q28 = q5 ^ q13;
	const word q29 = q0 ^ q10;

	x[0] = q27;
	x[1] = q28;
	x[2] = q21;
	x[3] = q29;
	x[4] = q25;
	x[5] = q24;
	x[6] = q26;
	x[7] = q22;
}
