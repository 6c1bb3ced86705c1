/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The buckets of cotenant.units.histogram, found with integers alone. `bounds[i]` is the largest whole number of
 * nanoseconds that bucket i holds; the loader computes it from the Python definition, so that there is one.
 */
#ifndef COTENANT_BUCKET_H
#define COTENANT_BUCKET_H

#define BUCKETS 321 /* MAX_BUCKET + 1 */
#define BOUNDS 512  /* room for the masked index below; the tail is the largest number */

/*
 * Bucket 8·k ends at 1000·2^k ns and 2^9 < 1000 < 2^10, so a value in [2^l, 2^(l+1)) lies in one of nine buckets
 * that follow 8·l - 80: four comparisons tell which.
 */
static __attribute__((always_inline)) inline __u32 bucket_of(__u64 ns, const volatile __u64 *bounds)
{
	__u32 i, log = 0;
	__u64 rest = ns;

	if (ns <= bounds[0])
		return 0;
	if (rest >> 32) {
		rest >>= 32;
		log += 32;
	}
	if (rest >> 16) {
		rest >>= 16;
		log += 16;
	}
	if (rest >> 8) {
		rest >>= 8;
		log += 8;
	}
	if (rest >> 4) {
		rest >>= 4;
		log += 4;
	}
	if (rest >> 2) {
		rest >>= 2;
		log += 2;
	}
	if (rest >> 1)
		log += 1;
	i = log > 10 ? 8 * log - 80 : 0;
	if (ns > bounds[(i + 7) & (BOUNDS - 1)])
		i += 8;
	if (ns > bounds[(i + 3) & (BOUNDS - 1)])
		i += 4;
	if (ns > bounds[(i + 1) & (BOUNDS - 1)])
		i += 2;
	if (ns > bounds[i & (BOUNDS - 1)])
		i += 1;
	return i < BUCKETS ? i : BUCKETS - 1;
}

#endif
