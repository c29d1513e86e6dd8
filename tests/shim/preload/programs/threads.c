/*
 * threads COUNT ROUNDS: so many threads, each on a file of its own and all on one together: take, free, look, duplicate and
 * close, all at once, with a child of fork now and then. Linked with the library's own sources, under a sanitizer.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rm.h"

enum { MIB_SHIFT = 20, MIB = 700, MOST = 8, THREADS = 16, MISUSE = 2 };

static struct rm shared = { .path = "/dev/nvidiactl", .branch = 580, .minor = -1, .attr = NV_ATTR_64K };
static _Atomic long given, refused;
static long rounds;

static void take_and_free(const struct rm *rm)
{
	uint32_t object, status = rm_take(rm, (uint64_t)MIB << MIB_SHIFT, &object);

	if (status != 0 && status != NV_NO_MEMORY)
		rm_die("RM_ALLOC", status);
	atomic_fetch_add(status ? &refused : &given, 1);
	if (status == 0 && rm_free(rm, object) != 0)
		rm_die("RM_FREE", 1);
}

/* Threads that take turns never meet the limit: so one does before there are others. */
static void meet_the_limit(void)
{
	uint32_t objects[MOST], count = 0, status;

	while ((status = rm_take(&shared, (uint64_t)MIB << MIB_SHIFT, &objects[count])) == 0 && count < MOST - 1)
		count++;
	if (status != NV_NO_MEMORY)
		rm_die("RM_ALLOC", status);
	given += count;
	refused++;
	while (count-- > 0)
		if (rm_free(&shared, objects[count]) != 0)
			rm_die("RM_FREE", 1);
}

static void look(const struct rm *rm)
{
	static const uint32_t indices[] = { NV_TOTAL_RAM, NV_HEAP_FREE };
	uint32_t kib[2], status = rm_report(rm, indices, kib, 2);

	if (status != 0 || kib[0] != 4301u << 10 || kib[1] > kib[0])
		rm_die("FB_GET_INFO", status);
}

static void in_a_child(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(close(shared.control));
	waitpid(child, NULL, 0);
}

static void *work(void *number)
{
	for (long i = 0; i < rounds; i++) {
		struct rm own = { .path = "/dev/nvidiactl", .branch = 580, .minor = -1, .attr = NV_ATTR_64K };
		uint32_t kept;
		int copy;

		rm_start(&own);
		take_and_free(&own);
		take_and_free(&shared);
		look(i % 2 ? &own : &shared);
		rm_take(&own, (uint64_t)MIB << MIB_SHIFT, &kept);
		copy = fcntl(own.control, F_DUPFD_CLOEXEC, 100);
		close(own.control);
		own.control = copy;
		take_and_free(&own);
		close(own.card);
		close(copy);
		if (i % 8 == *(int *)number)
			in_a_child();
	}
	return NULL;
}

int main(int count, char **words)
{
	int threads = count == 3 ? atoi(words[1]) : 0, numbers[THREADS];
	pthread_t made[THREADS];

	if (threads < 1 || threads > THREADS)
		return MISUSE;
	rounds = atol(words[2]);
	rm_start(&shared);
	meet_the_limit();
	for (int i = 0; i < threads; i++) {
		numbers[i] = i;
		pthread_create(&made[i], NULL, work, &numbers[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(made[i], NULL);
	close(shared.control);
	printf("%ld given, %ld refused\n", given, refused);
	return 0;
}
