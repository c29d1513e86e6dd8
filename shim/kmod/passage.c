// SPDX-License-Identifier: MIT OR GPL-2.0
#include "passage.h"

#include <linux/hashtable.h>
#include <linux/kprobes.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

/*
 * Looked up under RCU, as a handler may take no lock: only the current task itself has written the entries that it
 * reads.
 */
struct passage {
	struct hlist_node node;
	struct task_struct *task;
	const void *to;
	struct rcu_head rcu;
};

static DEFINE_HASHTABLE(passages, 6);
static DEFINE_SPINLOCK(passages_lock);

struct passage *passage_enter(const void *to)
{
	struct passage *passage = kmalloc(sizeof(*passage), GFP_KERNEL | __GFP_NOFAIL);

	passage->task = current;
	passage->to = to;
	spin_lock(&passages_lock);
	hash_add_rcu(passages, &passage->node, (unsigned long)current);
	spin_unlock(&passages_lock);
	return passage;
}

void passage_leave(struct passage *passage)
{
	spin_lock(&passages_lock);
	hash_del_rcu(&passage->node);
	spin_unlock(&passages_lock);
	kfree_rcu(passage, rcu);
}

bool passage_is_open(const void *to)
{
	struct passage *passage;
	bool is_found = false;

	rcu_read_lock();
	hash_for_each_possible_rcu(passages, passage, node, (unsigned long)current)
		is_found |= passage->task == current && passage->to == to;
	rcu_read_unlock();
	return is_found;
}
NOKPROBE_SYMBOL(passage_is_open);
