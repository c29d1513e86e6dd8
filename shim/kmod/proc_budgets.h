/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The folders of the cards and, below each, of the budgets that have a limit on it. All of it under the commands'
 * lock; readers and writers of a file hold a budget's lock at most, so that a folder can be removed meanwhile.
 */
#ifndef PROC_BUDGETS_H
#define PROC_BUDGETS_H

#include <linux/types.h>

struct budget;
struct proc_dir_entry;

/* Creates no folder yet; all will be in this one. */
void proc_budgets_begin(struct proc_dir_entry *root);

/* One bit for each card. Existing folders stay. */
int proc_budgets_add_cards(u32 cards);
/* Creates the budget's folders on these cards, and the cards' own. The budget must exist until they are removed. */
int proc_budgets_add(struct budget *budget, u32 cards);
/* Waits for readers and writers. */
void proc_budgets_remove(struct budget *budget);
/* max_inst of a card. */
unsigned int proc_budgets_max_on_card(u32 card);
/*
 * How many channel groups the budget may have: the sum of max_groups of its cards, since which card a group is on is
 * learned from what its tasks can write. None for a budget that `deny` made. Takes the budget's lock.
 */
u32 proc_budgets_max_groups(struct budget *budget);

#endif
