/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The folders of the cards and, below each, of the budgets that have a limit on it. All of it under the commands'
 * lock; a reader or writer of a file holds a budget's lock at most, so that a folder can be removed while they do.
 */
#ifndef PROC_BUDGETS_H
#define PROC_BUDGETS_H

#include <linux/types.h>

struct budget;
struct proc_dir_entry;

/* There is no folder yet; all will stand in this one. */
void proc_budgets_begin(struct proc_dir_entry *root);

/* One bit for each card. Those that are there stay. */
int proc_budgets_add_cards(u32 cards);
/* The budget's folders on these cards, and the cards' own; the budget is there until they are removed. */
int proc_budgets_add(struct budget *budget, u32 cards);
/* Waits for readers and writers. */
void proc_budgets_remove(struct budget *budget);
/* max_inst of a card. */
unsigned int proc_budgets_max_on_card(u32 card);

#endif
