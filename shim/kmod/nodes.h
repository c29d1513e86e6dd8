/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The folders of the cards and, below each, of the instances that have a budget on it. All of it under the commands'
 * lock; who reads or writes a node holds an instance's lock at most, so that a folder can be removed while they do.
 */
#ifndef NODES_H
#define NODES_H

#include <linux/types.h>

struct instance;
struct proc_dir_entry;

/* There is no folder yet; all will stand in this one. */
void nodes_begin(struct proc_dir_entry *root);

/* One bit for each card. Those that are there stay. */
int nodes_add_cards(u32 cards);
/* The instance's folders on these cards, and the cards' own; the instance is there until they are removed. */
int nodes_add_instance(struct instance *instance, u32 cards);
/* Waits for those who are reading or writing one. */
void nodes_remove_instance(struct instance *instance);
/* max_inst of a card. */
unsigned int nodes_most_instances(u32 card);

#endif
