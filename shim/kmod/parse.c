// SPDX-License-Identifier: MIT OR GPL-2.0
#include "parse.h"

#include <linux/ctype.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "budgets.h"

char *parse_copy_line(const char __user *from, size_t size)
{
	char *text;

	if (!size || size > PARSE_BYTES_MAX)
		return ERR_PTR(-EINVAL);
	text = memdup_user_nul(from, size);
	if (IS_ERR(text))
		return text;
	if (text[size - 1] == '\n')
		text[--size] = '\0';
	if (size && strlen(text) == size && !strchr(text, '\n'))
		return text;
	kfree(text);
	return ERR_PTR(-EINVAL);
}

char *parse_next_field(char **rest)
{
	return strsep(rest, " ");
}

bool parse_number(const char *word, u64 *number)
{
	return word[strspn(word, "0123456789")] == '\0' && !kstrtou64(word, 10, number);
}

bool parse_is_name(const char *word)
{
	const char *at;

	/* These are files beside the budgets' folders. */
	if (!strcmp(word, "max_inst") || !strcmp(word, "max_groups") || !strcmp(word, "policy"))
		return false;
	if (!isascii(*word) || !isalnum(*word))
		return false;
	for (at = word; *at; at++)
		if (!isascii(*at) || !(isalnum(*at) || strchr("._-", *at)))
			return false;
	return at - word <= BUDGET_NAME_MAX;
}
