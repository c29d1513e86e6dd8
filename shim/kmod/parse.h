/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What is written to the files of /proc: fields between single spaces, decimal numbers, names. */
#ifndef PARSE_H
#define PARSE_H

#include <linux/types.h>

#define PARSE_BYTES_MAX 4095

/* The text of one write(2) without its newline, for the caller to free; or ERR_PTR. It has no zero byte inside. */
char *parse_copy_line(const char __user *from, size_t size);
/* Cuts off the first field; NULL: none is left. An empty field is neither a number nor a name. */
char *parse_next_field(char **rest);

/* Digits only, and a value that fits. */
bool parse_number(const char *word, u64 *number);
/* Can it name a budget, and so a folder beside the files of a card? */
bool parse_is_name(const char *word);

#endif
