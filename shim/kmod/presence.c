// SPDX-License-Identifier: MIT OR GPL-2.0
#include "presence.h"

#include <linux/rcupdate.h>
#include <linux/srcu.h>

DEFINE_STATIC_SRCU(presence);

int presence_enter(void)
	__acquires(&presence)
{
	return srcu_read_lock(&presence);
}

void presence_leave(int index)
	__releases(&presence)
{
	srcu_read_unlock(&presence, index);
}

/*
 * Before presence_enter and after presence_leave there are a few instructions that no lock covers. Nobody sleeps in
 * them, so they are over once every task has slept once by its own will.
 */
void presence_drain(void)
{
	synchronize_rcu_tasks();
	synchronize_srcu(&presence);
}

void presence_end(void)
{
	synchronize_srcu(&presence);
	synchronize_rcu_tasks();
}
