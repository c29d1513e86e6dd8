/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What is written to the nodes: fields between single spaces, decimal numbers, names. */
#ifndef WORDS_H
#define WORDS_H

#include <linux/types.h>

#define WORDS_BYTES_MOST 4095

/* The whole of one write(2) without its newline, to be freed; ERR_PTR. Its length has no zero byte in it. */
char *words_read(const char __user *from, size_t size);
/* Cuts the first field off; NULL: there is none any more. An empty one is none of the kinds below. */
char *words_next(char **rest);

/* Digits and nothing else, and no more than fits. */
bool words_are_number(const char *word, u64 *number);
/* Of an instance: it names a folder beside the nodes of a card. */
bool words_are_name(const char *word);

#endif
