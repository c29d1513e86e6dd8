/* A form for tests in which caller and core are one program: plain copies, a real lock, one limit for everybody. */
#ifndef OWN_MEMORY_H
#define OWN_MEMORY_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "limit.h"

struct own_form {
	pthread_mutex_t tables, budget;
	struct limit limit;
	struct limit_share share;
};

static void own_lock(void *form)
{
	pthread_mutex_lock(&((struct own_form *)form)->tables);
}

static void own_unlock(void *form)
{
	pthread_mutex_unlock(&((struct own_form *)form)->tables);
}

static void *own_grow(void *form, void *old, size_t old_size, size_t new_size)
{
	unsigned char *bigger = NULL;

	(void)form;
	if (new_size)
		bigger = calloc(1, new_size);
	if (bigger && old)
		memcpy(bigger, old, old_size);
	if (bigger || !new_size)
		free(old);
	return bigger;
}

static bool own_take(void *form, void *owner, uint32_t card, uint64_t bytes)
{
	struct own_form *own = form;
	bool fits;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	fits = limit_take(&own->share, bytes);
	pthread_mutex_unlock(&own->budget);
	return fits;
}

static void own_settle(void *form, void *owner, uint32_t card, uint64_t more)
{
	struct own_form *own = form;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	limit_settle(&own->share, more);
	pthread_mutex_unlock(&own->budget);
}

static void own_give(void *form, void *owner, uint32_t card, uint64_t bytes)
{
	struct own_form *own = form;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	if (bytes > own->share.used_bytes)
		abort();
	limit_give(&own->share, bytes);
	pthread_mutex_unlock(&own->budget);
}

static bool own_look(void *form, void *owner, uint32_t card, uint64_t *limit_bytes, uint64_t *used_bytes)
{
	struct own_form *own = form;

	(void)owner, (void)card;
	pthread_mutex_lock(&own->budget);
	*limit_bytes = own->limit.limit_bytes;
	*used_bytes = own->limit.used_bytes;
	pthread_mutex_unlock(&own->budget);
	return true;
}

static void own_begin(struct own_form *own, uint64_t limit_bytes)
{
	*own = (struct own_form){ .tables = PTHREAD_MUTEX_INITIALIZER, .budget = PTHREAD_MUTEX_INITIALIZER };
	own->limit.limit_bytes = limit_bytes;
	limit_join(&own->limit, &own->share, 1);
}

#endif
