/*
 * stress WORKERS SESSIONS SEED: so many processes at once, each living for some sessions, until all SESSIONS are over.
 *
 * A session opens the control file, takes some pieces, frees some, and leaves in one of many ways: closes all in order,
 * closes the file alone, ends, is killed in the midst, forks a child that does the same or only stays for a moment.
 *
 * It keeps count by itself, from below: what was given is added after the driver gave it, and taken off before it is freed, or
 * before its owner is killed. So at no time there is less in use than counted, and the count itself must stay within the limit.
 * Says how many pieces were given and refused, and the highest count in MiB.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rm.h"

enum { MIB_SHIFT = 20, SLOTS = 1 << 16, PIECES = 4, LARGEST_MIB = 1200, LIFE = 12, NOT_DONE = 3 };

struct tally {
	_Atomic long left, given, refused, killed, forked, used, peak;
	_Atomic unsigned slots;
	_Atomic long slot[SLOTS]; /* of `used`, by process */
};

static struct tally *tally; /* shared by all processes */
static _Atomic long *mine;

static void count_up(long mib)
{
	long used, peak;

	atomic_fetch_add(mine, mib);
	used = atomic_fetch_add(&tally->used, mib) + mib;
	peak = atomic_load(&tally->peak);
	while (used > peak && !atomic_compare_exchange_weak(&tally->peak, &peak, used))
		;
}

static void count_down(long mib)
{
	atomic_fetch_sub(mine, mib);
	atomic_fetch_sub(&tally->used, mib);
}

static void count_nothing(_Atomic long *slot)
{
	atomic_fetch_sub(&tally->used, atomic_exchange(slot, 0));
}

static void get_slot(void)
{
	mine = &tally->slot[atomic_fetch_add(&tally->slots, 1) % SLOTS];
	atomic_store(mine, 0);
}

static unsigned draw(unsigned *seed, unsigned below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (unsigned)(((unsigned long long)*seed * below) >> 32);
}

static void must(uint32_t status, const char *what)
{
	if (status != 0)
		rm_die(what, status);
}

static void take_some(const struct rm *rm, unsigned *seed)
{
	uint32_t objects[PIECES], count = 0, status;
	long mib[PIECES];

	for (unsigned i = 0; i < PIECES; i++) {
		mib[count] = 1 + (long)draw(seed, LARGEST_MIB);
		status = rm_take(rm, (uint64_t)mib[count] << MIB_SHIFT, &objects[count]);
		if (status != NV_NO_MEMORY)
			must(status, "RM_ALLOC");
		atomic_fetch_add(status ? &tally->refused : &tally->given, 1);
		if (status == 0)
			count_up(mib[count++]);
		if (count == 0 || draw(seed, 3) != 0)
			continue;
		count_down(mib[--count]);
		must(rm_free(rm, objects[count]), "RM_FREE");
	}
}

struct racer {
	const struct rm *rm;
	unsigned seed;
};

static void *race(void *given)
{
	struct racer *racer = given;

	take_some(racer->rm, &racer->seed);
	return NULL;
}

static void take_in_two_threads(const struct rm *rm, unsigned *seed)
{
	struct racer racer = { rm, *seed ^ 0x5A5A5A5Au };
	pthread_t thread;

	must((uint32_t)pthread_create(&thread, NULL, race, &racer), "pthread_create");
	take_some(rm, seed);
	pthread_join(thread, NULL);
}

static void session(unsigned *seed, bool may_fork);

/* It has the parent's control file: the memory lives as long as both. */
static pid_t fork_child(unsigned *seed, bool is_busy)
{
	pid_t child = fork();

	atomic_fetch_add(&tally->forked, child == 0);
	if (child != 0)
		return child;
	*seed ^= (unsigned)getpid();
	get_slot();
	if (is_busy)
		session(seed, false);
	_exit(0);
}

static void session(unsigned *seed, bool may_fork)
{
	struct rm rm = rm_plain();
	unsigned way = draw(seed, 8);
	pid_t child = -1;

	rm_start(&rm);
	if (way == 0)
		take_in_two_threads(&rm, seed);
	else
		take_some(&rm, seed);
	if (way <= 1 && may_fork)
		child = fork_child(seed, way == 1);
	count_nothing(mine);
	if (way == 2)
		must(rm_free(&rm, rm.device), "RM_FREE");
	if (way == 3) {
		atomic_fetch_add(&tally->killed, 1);
		raise(SIGKILL);
	}
	close(rm.card);
	close(rm.control);
	if (child > 0)
		waitpid(child, NULL, 0);
}

static void live(unsigned seed, _Atomic long *slot)
{
	mine = slot;
	for (int i = 0; i < LIFE && atomic_fetch_sub(&tally->left, 1) > 0; i++)
		session(&seed, true);
	_exit(0);
}

/* Now and then a child is killed, whatever it is doing. Stopped first, so that its count stands still. */
static void kill_one(pid_t *workers, int count, unsigned *seed)
{
	int worker = (int)draw(seed, (unsigned)count), status;
	pid_t pid = workers[worker];

	if (pid <= 0 || draw(seed, 4) != 0 || kill(pid, SIGSTOP) != 0)
		return;
	if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) {
		workers[worker] = 0;
		return;
	}
	count_nothing(&tally->slot[worker]);
	kill(pid, SIGKILL);
	atomic_fetch_add(&tally->killed, 1);
}

static bool bury_one(pid_t *workers, int count)
{
	int status, i = 0;
	pid_t pid = wait(&status);

	if (pid < 0)
		return errno == ECHILD;
	while (i < count && workers[i] != pid)
		i++;
	if (i < count)
		workers[i] = 0;
	return WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0;
}

int main(int count, char **words)
{
	int workers = count == 4 ? atoi(words[1]) : 0;
	unsigned seed = count == 4 ? (unsigned)atoi(words[3]) : 0, number = 0;
	pid_t pids[64] = { 0 };

	if (workers < 1 || workers > 64)
		return 2;
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	atomic_store(&tally->slots, (unsigned)workers);
	atomic_store(&tally->left, atol(words[2]));
	while (atomic_load(&tally->left) > 0) {
		for (int i = 0; i < workers; i++) {
			if (pids[i])
				continue;
			pids[i] = fork();
			if (pids[i] == 0)
				live(seed + 7919 * number, &tally->slot[i]);
			number++;
		}
		kill_one(pids, workers, &seed);
		if (!bury_one(pids, workers))
			return NOT_DONE;
	}
	while (!(wait(NULL) < 0 && errno == ECHILD))
		;
	printf("%ld given, %ld refused, %ld killed, %ld forked, peak %ld\n", tally->given, tally->refused, tally->killed,
	       tally->forked, tally->peak);
	return 0;
}
