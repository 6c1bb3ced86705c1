// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Run-queue latency: how long a task that wanted to run waited for a CPU, by the group that the CPU controller put
 * it in. One of two ways is loaded:
 *
 * - `switch_stamped`: the scheduler itself notes when a task was queued (sched_info, built in wherever schedstats or
 *   delay accounting is). One hook, no state of ours, and what is not sampled costs next to nothing.
 * - `wakeup`, `wakeup_new`, `switch_tracked`: our own stamps, for kernels without.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "bucket.h"

#define TASK_RUNNING 0
#define MIXER 0x9e3779b97f4a7c15ull /* 2^64 by the golden ratio */

struct settings {
	__u64 steps[STEPS];
	__u32 default_hierarchy; /* 1: the CPU controller is on the cgroup v2 hierarchy */
	__u32 pad;
};

const volatile struct settings settings SEC(".rodata.settings");

/* Global, so that the verifier looks into it once and not at every call along every path. */
__noinline __u64 bucket(__u64 ns)
{
	return bucket_of(ns, settings.steps);
}

struct group {
	__u32 usec[BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u64);
	__type(value, struct group);
} groups SEC(".maps");

/* When a task was queued, by pid: the second way only. A stamp that is pushed out is a wait that is not counted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} queued SEC(".maps");

/* Waits that no entry was left for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* A wait counts when its time stamp, well mixed, has none of these bits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sampling SEC(".maps");

static const struct group no_group;

static __always_inline bool sampled(__u64 ns)
{
	__u32 zero = 0, *mask = bpf_map_lookup_elem(&sampling, &zero);

	return mask && !(ns * MIXER >> 40 & *mask);
}

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void count(struct task_struct *task, __u64 waited_ns)
{
	struct cgroup *cgroup = settings.default_hierarchy ? task->cgroups->dfl_cgrp : task->sched_task_group->css.cgroup;
	__u64 key = cgroup->kn->id;
	struct group *group = bpf_map_lookup_elem(&groups, &key);

	if (!group) {
		bpf_map_update_elem(&groups, &key, &no_group, BPF_NOEXIST);
		group = bpf_map_lookup_elem(&groups, &key);
		if (!group) {
			count_lost();
			return;
		}
	}
	__sync_fetch_and_add(&group->usec[bounded(bucket(waited_ns))], 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch_stamped, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 queued_at = next->sched_info.last_queued, now;

	/* The scheduler is about to write what was read here, so this costs nothing; the idle task is never queued. */
	if (!queued_at || !sampled(queued_at))
		return 0;
	/* The clock that the stamp is taken from; whatever the task's class, its entity knows its CPU's queue. */
	now = next->se.cfs_rq->rq->clock;
	if (now >= queued_at)
		count(next, now - queued_at);
	return 0;
}

static __always_inline int queue(struct task_struct *task)
{
	__u32 pid = task->pid;
	__u64 now;

	if (!pid)
		return 0;
	now = bpf_ktime_get_ns();
	if (!sampled(now))
		return 0;
	bpf_map_update_elem(&queued, &pid, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(wakeup, struct task_struct *task)
{
	return queue(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(wakeup_new, struct task_struct *task)
{
	return queue(task);
}

static __always_inline bool runnable(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state == TASK_RUNNING;
	return old->state == TASK_RUNNING;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch_tracked, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 pid = next->pid;
	__u64 *queued_at, now;

	if (preempt || runnable(prev))
		queue(prev);
	if (!pid)
		return 0;
	queued_at = bpf_map_lookup_elem(&queued, &pid);
	if (!queued_at)
		return 0;
	now = bpf_ktime_get_ns();
	if (now >= *queued_at)
		count(next, now - *queued_at);
	bpf_map_delete_elem(&queued, &pid);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
