// SPDX-License-Identifier: Apache-2.0
//
// Prime, wait, and time a pointer chase: how fast our lines are pushed out of the shared cache. All lines are loaded
// once, left alone for a moment, and then some are followed in random order, each load waiting for the one before it.
// The time per load is a hit in the shared cache while nobody wants the space, and a trip to memory when a neighbour
// flushes it. Of several rounds the fastest counts: one in which we lost the CPU says nothing of the cache.

#define _POSIX_C_SOURCE 200809L

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { LINE_BYTES = 64 };

struct line {
	struct line *next;
	char rest[LINE_BYTES - sizeof(struct line *)];
};

struct llc_probe {
	struct line *lines;
	struct line *at;
	size_t count;
};

static uint64_t random_below(uint64_t *state, uint64_t bound)
{
	// xorshift64*: good enough to defeat the prefetchers, and the same order each time
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 2685821657736338717ULL) % bound;
}

// Returns a probe over so many bytes, all its lines in one random cycle; NULL without memory.
struct llc_probe *llc_probe_open(size_t bytes)
{
	size_t count = bytes / LINE_BYTES;
	uint64_t state = 88172645463325252ULL;
	struct llc_probe *probe = malloc(sizeof(*probe));
	struct line *lines = NULL;

	if (!probe || count < 2 || posix_memalign((void **)&lines, 4096, count * LINE_BYTES)) {
		free(probe);
		return NULL;
	}
	// Sattolo's shuffle makes one cycle of all lines, through the links themselves: no second array.
	for (size_t i = 0; i < count; i++)
		lines[i].next = &lines[i];
	for (size_t i = count - 1; i > 0; i--) {
		size_t j = random_below(&state, i);
		struct line *swapped = lines[i].next;

		lines[i].next = lines[j].next;
		lines[j].next = swapped;
	}
	probe->lines = lines;
	probe->at = lines;
	probe->count = count;
	return probe;
}

// Returns the nanoseconds per link of the fastest of so many rounds, each of so many links after a wait.
double llc_probe_run(struct llc_probe *probe, int rounds, int links, long wait_usec)
{
	struct timespec wait = {.tv_sec = 0, .tv_nsec = wait_usec * 1000}, start, end;
	double best = -1;

	for (int round = 0; round < rounds; round++) {
		struct line *at = probe->at;

		for (size_t i = 0; i < probe->count; i++)
			(void)*(struct line *volatile *)&probe->lines[i].next;
		nanosleep(&wait, NULL);
		clock_gettime(CLOCK_MONOTONIC, &start);
		for (int link = 0; link < links; link++)
			at = *(struct line *volatile *)&at->next;
		clock_gettime(CLOCK_MONOTONIC, &end);
		probe->at = at;
		double nsec = (end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec);
		if (best < 0 || nsec / links < best)
			best = nsec / links;
	}
	return best;
}

void llc_probe_close(struct llc_probe *probe)
{
	free(probe->lines);
	free(probe);
}
