/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What is written to the files of /proc: fields between single spaces, decimal numbers, names. */
#ifndef PARSE_H
#define PARSE_H

#include <linux/types.h>

#define PARSE_BYTES_MAX 4095

/* The whole of one write(2) without its newline, to be freed; ERR_PTR. Its length has no zero byte in it. */
char *parse_copy_line(const char __user *from, size_t size);
/* Cuts the first field off; NULL: there is none any more. An empty one is none of the kinds below. */
char *parse_next_field(char **rest);

/* Digits and nothing else, and no more than fits. */
bool parse_number(const char *word, u64 *number);
/* Of a budget: it names a folder beside the files of a card. */
bool parse_is_name(const char *word);

#endif
