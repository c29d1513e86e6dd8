/*
 * race [--control PATH] [--driver BRANCH] [--minor N] [--cycles N | --seconds N] [--sessions N] [--workers N] [--most MIB] [--seed N]
 *
 * Many short lives at once: each cycle a process opens the driver, takes up to MIB in a few pieces, gives some back, perhaps
 * leaves a child that holds its files, and ends well, by itself without a word, or by kill -9 in the midst of it. With
 * --sessions it does so that many times over before it ends, which is quicker where a process is dear. Says how much was given
 * and refused. A status that is neither is a failure.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rm.h"

enum { MIB_SHIFT = 20, PIECES = 4, MISUSE = 2, LONGEST_LIFE_NS = 2000000, FAILED = 3 };

struct race {
	struct rm rm;
	long cycles, seconds, sessions, workers, most;
	unsigned seed;
};

/* Shared by all processes. */
struct tally {
	_Atomic long sessions, given, refused, freed, killed, children, failed;
};

static long pick(unsigned *seed, long below)
{
	return rand_r(seed) % below;
}

static void nap(unsigned *seed)
{
	struct timespec pause = { 0, pick(seed, LONGEST_LIFE_NS) };

	nanosleep(&pause, NULL);
}

/* From the opening of the driver on; the files stay open. */
static void session(struct race *race, struct tally *tally, unsigned seed)
{
	uint32_t objects[PIECES], status;
	int held = 0;

	tally->sessions++;
	race->rm.client = race->rm.device = race->rm.subdevice = 0;
	rm_start(&race->rm);
	for (int i = 0; i < PIECES; i++) {
		uint64_t mib = (uint64_t)(1 + pick(&seed, race->most / PIECES));

		status = rm_take(&race->rm, mib << MIB_SHIFT, &objects[held]);
		if (status != 0 && status != NV_NO_MEMORY)
			rm_die("RM_ALLOC", status);
		tally->given += status == 0;
		tally->refused += status == NV_NO_MEMORY;
		held += status == 0;
		if (held && pick(&seed, 2)) {
			status = rm_free(&race->rm, objects[--held]);
			if (status != 0)
				rm_die("RM_FREE", status);
			tally->freed++;
		}
	}
	if (pick(&seed, 8) == 0 && fork() == 0) {
		tally->children++;
		nap(&seed);
		_exit(0);
	}
	if (pick(&seed, 2))
		rm_free(&race->rm, race->rm.client);
}

/* One process's life, but for its end. */
static void live(struct race *race, struct tally *tally, unsigned seed)
{
	for (long i = 1; i < race->sessions; i++) {
		session(race, tally, seed + (unsigned)i);
		close(race->rm.card);
		close(race->rm.control);
	}
	session(race, tally, seed);
}

static void cycle(struct race *race, struct tally *tally, unsigned *seed)
{
	bool is_killed = pick(seed, 3) == 0;
	unsigned childs = (unsigned)rand_r(seed);
	pid_t child = fork();
	int how;

	if (child == 0) {
		live(race, tally, childs);
		_exit(0);
	}
	if (child < 0) {
		tally->failed++;
		return;
	}
	if (is_killed) {
		nap(seed);
		kill(child, SIGKILL);
		tally->killed++;
	}
	while (waitpid(child, &how, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(how) ? WEXITSTATUS(how) != 0 : WTERMSIG(how) != SIGKILL)
		tally->failed++;
}

static void work(struct race *race, struct tally *tally, unsigned seed)
{
	time_t end = time(NULL) + race->seconds;

	for (long i = 0; race->seconds ? time(NULL) < end : i < race->cycles / race->workers; i++)
		cycle(race, tally, &seed);
	_exit(0);
}

static void parse(int count, char **words, struct race *race)
{
	static const struct option options[] = {
		{ "control", 1, NULL, 'c' }, { "driver", 1, NULL, 'b' }, { "cycles", 1, NULL, 'n' },
		{ "workers", 1, NULL, 'w' }, { "most", 1, NULL, 'm' }, { "seed", 1, NULL, 's' }, { "minor", 1, NULL, 'i' },
		{ "seconds", 1, NULL, 't' }, { "sessions", 1, NULL, 'e' }, { 0 },
	};
	int option;

	while ((option = getopt_long(count, words, "", options, NULL)) != -1) {
		switch (option) {
		case 'c': race->rm.path = optarg; break;
		case 'b': race->rm.branch = (unsigned)atoi(optarg); break;
		case 'i': race->rm.minor = atoi(optarg); break;
		case 'n': race->cycles = atol(optarg); break;
		case 't': race->seconds = atol(optarg); break;
		case 'e': race->sessions = atol(optarg); break;
		case 'w': race->workers = atol(optarg); break;
		case 'm': race->most = atol(optarg); break;
		case 's': race->seed = (unsigned)atoi(optarg); break;
		default: exit(MISUSE);
		}
	}
	if (race->workers < 1 || race->most < PIECES)
		exit(MISUSE);
}

int main(int count, char **words)
{
	struct race race = {
		.rm = rm_plain(), .cycles = 1000, .sessions = 1, .workers = 4, .most = 1024, .seed = 1,
	};
	struct tally *tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	parse(count, words, &race);
	if (tally == MAP_FAILED)
		rm_die("mmap", 0);
	for (long i = 0; i < race.workers; i++)
		if (fork() == 0)
			work(&race, tally, race.seed + (unsigned)i);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	printf("%ld sessions, %ld given, %ld refused, %ld freed, %ld killed, %ld children, %ld failed\n", tally->sessions,
	       tally->given, tally->refused, tally->freed, tally->killed, tally->children, tally->failed);
	return tally->failed ? FAILED : 0;
}
