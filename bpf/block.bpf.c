// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Block requests between the scheduler queue and the device: how long they took, how much they carried, for whom.
 *
 * A request is known by its address from issue to the completion of its last byte. When it was made, the kernel notes
 * in it: its latency is counted from there, as /proc/diskstats counts it, so that waiting in a plug, behind a flush or
 * in the scheduler's queue is part of it and no event of its own is needed. Queue time ends and device time starts at
 * the last issue: a request that the device had no room for is requeued and issued again. Only requests that carry
 * data count: flushes, discards, zone management and passthrough commands do not.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "bucket.h"

#define IGNORED_MAJORS 4
#define OP_MASK 0xff
#define OP_READ 0
#define OP_WRITE 1
#define OP_ZONE_APPEND 7 /* before 5.18: WRITE_SAME */
#define OP_ZONE_APPEND_BEFORE_5_18 13

struct settings {
	__u64 steps[STEPS];
	__u32 ignored_majors[IGNORED_MAJORS]; /* dm, md, loop: their requests are seen again at the disk below */
	__u32 request_argument;		      /* 0, or 1 where (queue, request) are passed: before 5.11 */
	__u32 pad;
	__u64 followed_since_ns; /* requests made before this may have been issued before we were there */
};

const volatile struct settings settings SEC(".rodata.settings");

/* Global, so that the verifier looks into it once and not at every call along every path. */
__noinline __u64 bucket(__u64 ns)
{
	return bucket_of(ns, settings.steps);
}

struct pending {
	__u64 made_ns;	 /* where statistics of the queue are off and it has no scheduler: issued_ns */
	__u64 issued_ns; /* 0: in the queue again */
	__u64 device;	 /* major << 32 | minor */
	__u64 cgroup;
	__u64 write;
};

struct device {
	__u32 latency_usec[2][BUCKETS]; /* made to complete: read, write */
	__u32 queue_usec[BUCKETS];	/* made to last issue */
	__u32 device_usec[BUCKETS];	/* last issue to complete */
	__u64 completions[2]; /* read, write */
	__u64 bytes[2];
};

struct group {
	__u32 latency_usec[BUCKETS];
	__u32 pad;
	__u64 completions[2];
	__u64 bytes[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct pending);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, struct device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u64);
	__type(value, struct group);
} groups SEC(".maps");

enum {
	NO_ROOM, /* requests that no entry was left for */
	UNSEEN,	 /* requests that were issued or completed without a program being run for it */
	REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static const struct device no_device;
static const struct group no_group;

static __always_inline void count_lost(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&lost, &reason);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline struct request *request_of(__u64 *ctx)
{
	/* The verifier drops the branch that this kernel's argument list does not have. */
	if (settings.request_argument)
		return (struct request *)ctx[1];
	return (struct request *)ctx[0];
}

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	struct request___before_5_17 *old = (void *)rq;

	if (bpf_core_field_exists(old->rq_disk))
		return old->rq_disk;
	return rq->q->disk;
}

/* The disk of a request that counts, else 0. */
static __always_inline struct gendisk *counted_disk_of(struct request *rq)
{
	__u32 op = rq->cmd_flags & OP_MASK, major;
	struct gendisk *disk;

	if (op != OP_READ && op != OP_WRITE && op != OP_ZONE_APPEND && op != OP_ZONE_APPEND_BEFORE_5_18)
		return 0;
	if (!rq->__data_len)
		return 0;
	disk = disk_of(rq);
	if (!disk)
		return 0;
	major = disk->major;
	for (int i = 0; i < IGNORED_MAJORS; i++)
		if (major == settings.ignored_majors[i])
			return 0;
	return disk;
}

/* Follow a request whose address is known already: it was sent back to the queue, or its last use ended unseen. */
static __always_inline void follow_again(__u64 *key, struct pending *pending)
{
	struct pending *known = bpf_map_lookup_elem(&requests, key);

	if (!known) {
		count_lost(NO_ROOM);
		return;
	}
	if (known->issued_ns)
		count_lost(UNSEEN);
	bpf_map_update_elem(&requests, key, pending, BPF_ANY);
}

SEC("tp_btf/block_rq_issue")
int rq_issue(__u64 *ctx)
{
	struct request *rq = request_of(ctx);
	struct gendisk *disk = counted_disk_of(rq);
	struct pending pending = {};
	__u64 key = (__u64)rq;

	if (!disk)
		return 0;
	pending.issued_ns = bpf_ktime_get_ns();
	pending.made_ns = rq->start_time_ns;
	if (!pending.made_ns || pending.made_ns > pending.issued_ns)
		pending.made_ns = pending.issued_ns;
	pending.device = (__u64)(__u32)disk->major << 32 | (__u32)disk->first_minor;
	pending.write = (rq->cmd_flags & OP_MASK) != OP_READ;
	/* Not the current task: a write-back thread issues what others wrote. On v1 this is the blkio group. */
	pending.cgroup = rq->bio->bi_blkg->blkcg->css.cgroup->kn->id;
	if (bpf_map_update_elem(&requests, &key, &pending, BPF_NOEXIST))
		follow_again(&key, &pending);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int rq_requeue(__u64 *ctx)
{
	__u64 key = (__u64)request_of(ctx);
	struct pending *known = bpf_map_lookup_elem(&requests, &key);

	if (known)
		known->issued_ns = 0;
	return 0;
}

static __always_inline struct device *device_entry(__u64 key)
{
	struct device *device = bpf_map_lookup_elem(&devices, &key);

	if (device)
		return device;
	bpf_map_update_elem(&devices, &key, &no_device, BPF_NOEXIST);
	return bpf_map_lookup_elem(&devices, &key);
}

static __always_inline struct group *group_entry(__u64 key)
{
	struct group *group = bpf_map_lookup_elem(&groups, &key);

	if (group)
		return group;
	bpf_map_update_elem(&groups, &key, &no_group, BPF_NOEXIST);
	return bpf_map_lookup_elem(&groups, &key);
}

static __always_inline void count(__u32 *histogram, __u64 index)
{
	__sync_fetch_and_add(&histogram[bounded(index)], 1);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, int error, unsigned int nr_bytes)
{
	__u64 now = bpf_ktime_get_ns(), key = (__u64)rq;
	struct pending *known = bpf_map_lookup_elem(&requests, &key), pending;
	struct device *device;
	struct group *group;
	__u64 total;
	__u32 write;
	bool last;

	if (!known) {
		if (!error && counted_disk_of(rq) && rq->start_time_ns > settings.followed_since_ns)
			count_lost(UNSEEN);
		return 0;
	}
	pending = *known;
	/* A completion can come in parts; the request is done when all that is left of it is. */
	last = nr_bytes >= rq->__data_len;
	if (last)
		bpf_map_delete_elem(&requests, &key);
	if (!pending.issued_ns)
		return 0; /* did not reach the device: failed or dropped in the queue */
	total = bucket(now - pending.made_ns);
	write = pending.write ? 1 : 0;
	device = device_entry(pending.device);
	group = group_entry(pending.cgroup);
	if (device) {
		__sync_fetch_and_add(&device->bytes[write], nr_bytes);
		if (last) {
			__sync_fetch_and_add(&device->completions[write], 1);
			count(write ? device->latency_usec[1] : device->latency_usec[0], total);
			count(device->queue_usec, bucket(pending.issued_ns - pending.made_ns));
			count(device->device_usec, bucket(now - pending.issued_ns));
		}
	}
	if (group) {
		__sync_fetch_and_add(&group->bytes[write], nr_bytes);
		if (last) {
			__sync_fetch_and_add(&group->completions[write], 1);
			count(group->latency_usec, total);
		}
	}
	if (last && (!device || !group))
		count_lost(NO_ROOM);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
