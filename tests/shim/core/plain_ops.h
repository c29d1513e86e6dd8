/* core_ops for tests in which caller and core are one program: plain copies, a real lock, one limit for all. */
#ifndef PLAIN_OPS_H
#define PLAIN_OPS_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "limit.h"

#define PLAIN_GROUPS 4

struct plain_budget {
	pthread_mutex_t tables, budget;
	struct limit limit;
	struct limit_share share;
};

static void plain_lock(void *context)
{
	pthread_mutex_lock(&((struct plain_budget *)context)->tables);
}

static void plain_unlock(void *context)
{
	pthread_mutex_unlock(&((struct plain_budget *)context)->tables);
}

static void *plain_grow(void *context, void *old, size_t old_size, size_t new_size)
{
	unsigned char *bigger = NULL;

	(void)context;
	if (new_size)
		bigger = calloc(1, new_size);
	if (bigger && old)
		memcpy(bigger, old, old_size);
	if (bigger || !new_size)
		free(old);
	return bigger;
}

static bool plain_try_charge(void *context, void *owner, uint32_t card, uint64_t bytes)
{
	struct plain_budget *own = context;
	bool fits;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	fits = limit_try_charge(&own->share, bytes);
	pthread_mutex_unlock(&own->budget);
	return fits;
}

static void plain_settle_charge(void *context, void *owner, uint32_t card, uint64_t more)
{
	struct plain_budget *own = context;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	limit_settle_charge(&own->share, more);
	pthread_mutex_unlock(&own->budget);
}

static void plain_uncharge(void *context, void *owner, uint32_t card, uint64_t bytes)
{
	struct plain_budget *own = context;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	if (bytes > own->share.used_bytes)
		abort();
	limit_uncharge(&own->share, bytes);
	pthread_mutex_unlock(&own->budget);
}

static bool plain_usage(void *context, void *owner, uint32_t card, uint64_t *limit_bytes, uint64_t *used_bytes)
{
	struct plain_budget *own = context;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	*limit_bytes = own->limit.limit_bytes;
	*used_bytes = own->limit.used_bytes;
	pthread_mutex_unlock(&own->budget);
	return true;
}

static uint32_t plain_groups_most(void *context)
{
	(void)context;
	return PLAIN_GROUPS;
}

static void plain_begin(struct plain_budget *own, uint64_t limit_bytes)
{
	*own = (struct plain_budget){ .tables = PTHREAD_MUTEX_INITIALIZER, .budget = PTHREAD_MUTEX_INITIALIZER };
	own->limit.limit_bytes = limit_bytes;
	limit_join(&own->limit, &own->share, 1);
}

#endif
