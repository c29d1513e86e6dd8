/*
 * Preloaded into a process with an event loop: what each turn of the loop costs its thread in CPU time. A turn lasts from the
 * return of epoll_pwait until its next call, so that it is whatever no other event is served in, garbage collection included.
 *
 * TURN_CLOCK_FILE is where the turns of half a millisecond and more go: a count of 8 bytes, then for each turn when it began
 * (CLOCK_MONOTONIC) and what it cost, in nanoseconds. The file is there, zeroed and of its full size; one that is full counts on.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SHORTEST_NS 500000ull

struct turn {
	uint64_t began;
	uint64_t cost;
};

struct turns {
	uint64_t count;
	struct turn each[];
};

typedef int wait_function(int, struct epoll_event *, int, int, const sigset_t *);

static struct turns *turns;
static uint64_t capacity;
static __thread struct turn current;

__attribute__((constructor)) static void open_file(void)
{
	const char *path = getenv("TURN_CLOCK_FILE");
	int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	struct stat status;

	if (file < 0)
		return;
	if (fstat(file, &status) == 0 && (size_t)status.st_size > sizeof(*turns)) {
		void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

		if (mapped != MAP_FAILED) {
			turns = mapped;
			capacity = ((uint64_t)status.st_size - sizeof(*turns)) / sizeof(turns->each[0]);
		}
	}
	close(file);
}

static uint64_t read_clock(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
}

static void end_turn(void)
{
	uint64_t cost = read_clock(CLOCK_THREAD_CPUTIME_ID) - current.cost;

	if (!turns || !current.began || cost < SHORTEST_NS)
		return;
	if (turns->count < capacity)
		turns->each[turns->count] = (struct turn){ current.began, cost };
	turns->count++;
}

int epoll_pwait(int epoll, struct epoll_event *events, int size, int timeout, const sigset_t *mask)
{
	static wait_function *wait;
	int found;

	end_turn();
	if (!wait)
		wait = (wait_function *)dlsym(RTLD_NEXT, "epoll_pwait");
	found = wait(epoll, events, size, timeout, mask);
	current = (struct turn){ read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_THREAD_CPUTIME_ID) };
	return found;
}
