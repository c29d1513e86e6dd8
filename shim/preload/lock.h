/* A mutex of one word, without libc. All zeros is unlocked, as in memory that a fork has wiped. */
#ifndef LOCK_H
#define LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "syscalls.h"

enum lock_word { LOCK_FREE, LOCK_TAKEN, LOCK_AWAITED };

struct lock {
	_Atomic uint32_t word;
};

static inline bool lock_try(struct lock *lock)
{
	uint32_t seen = LOCK_FREE;

	return atomic_compare_exchange_strong_explicit(&lock->word, &seen, LOCK_TAKEN, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void lock_acquire(struct lock *lock)
{
	if (lock_try(lock))
		return;
	while (atomic_exchange_explicit(&lock->word, LOCK_AWAITED, memory_order_acquire) != LOCK_FREE)
		sys_call4(__NR_futex, (long)&lock->word, SYS_FUTEX_WAIT_PRIVATE, LOCK_AWAITED, 0);
}

static inline void lock_release(struct lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, LOCK_FREE, memory_order_release) == LOCK_AWAITED)
		sys_call4(__NR_futex, (long)&lock->word, SYS_FUTEX_WAKE_PRIVATE, 1, 0);
}

#endif
