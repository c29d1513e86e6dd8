// SPDX-License-Identifier: MIT OR GPL-2.0
#include "inflight.h"

#include <linux/rcupdate.h>
#include <linux/srcu.h>

DEFINE_STATIC_SRCU(inflight);

int inflight_enter(void)
	__acquires(&inflight)
{
	return srcu_read_lock(&inflight);
}

void inflight_leave(int index)
	__releases(&inflight)
{
	srcu_read_unlock(&inflight, index);
}

void inflight_drain(void)
{
	synchronize_srcu(&inflight);
}

/*
 * Before inflight_enter and after inflight_leave there are a few instructions that no lock covers. No task sleeps in
 * them, so they are over once every task has slept once by its own will. A kernel thread that never does delays only
 * this function.
 */
void inflight_end(void)
{
	synchronize_rcu_tasks();
	synchronize_srcu(&inflight);
	synchronize_rcu_tasks();
}
