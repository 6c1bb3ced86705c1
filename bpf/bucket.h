/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The buckets of cotenant.units.histogram, found with integers alone. Bucket 8·k ends at 1000·2^k ns, and there are
 * eight to an octave, so the leading bits of a number, whatever its size, are compared with the same eight steps:
 * where buckets 1 to 8 end, scaled so that the leading bit is the 64th. The loader takes them from the Python
 * definition, so that there is one.
 */
#ifndef COTENANT_BUCKET_H
#define COTENANT_BUCKET_H

#define BUCKETS 321 /* MAX_BUCKET + 1 */
#define STEPS 8

static __attribute__((always_inline)) inline __u64 bucket_of(__u64 ns, const volatile __u64 *steps)
{
	__u32 log = 63, passed = 0;
	__u64 index;

	if (ns <= 1000)
		return 0;
	if (!(ns >> 32)) {
		ns <<= 32;
		log -= 32;
	}
	if (!(ns >> 48)) {
		ns <<= 16;
		log -= 16;
	}
	if (!(ns >> 56)) {
		ns <<= 8;
		log -= 8;
	}
	if (!(ns >> 60)) {
		ns <<= 4;
		log -= 4;
	}
	if (!(ns >> 62)) {
		ns <<= 2;
		log -= 2;
	}
	if (!(ns >> 63)) {
		ns <<= 1;
		log -= 1;
	}
	if (ns > steps[3])
		passed = 4;
	if (ns > steps[(passed + 1) & (STEPS - 1)])
		passed += 2;
	if (ns > steps[passed & (STEPS - 1)])
		passed += 1;
	if (ns > steps[STEPS - 1])
		passed = STEPS;
	/* 1000 is in [2^9, 2^10): the first step of the octave that starts there ends bucket 1 of the one after. */
	index = 8 * log + 1 + passed - 80;
	return index < BUCKETS ? index : BUCKETS - 1;
}

/*
 * The result of a global function is any number to the verifier. It is bounded in the very register that is used: of
 * a number that the compiler has compared and then loads from the stack again, 6.1 has forgotten the bound.
 */
static __attribute__((always_inline)) inline __u64 bounded(__u64 index)
{
	asm volatile("if %[index] < %[buckets] goto +1\n\t"
		     "%[index] = 0"
		     : [index] "+r"(index)
		     : [buckets] "i"(BUCKETS));
	return index;
}

#endif
