/*
 * A program that does one thing after the other, as its arguments say, on one control file:
 *
 *      take MIB    says what cudaMalloc would        free        the last one that was taken
 *      open        control file, client, device      close       that control file
 *      dup         goes on with a duplicate          overwrite   puts /dev/null on the control file's number
 *      wait        says so, and reads a line         sweep       closes every number from 3 to 2000
 *      fork        a child does the next three       leave       a child stays until its input ends
 *      vfork       a child closes the control file   exec        the rest by a new program
 *      race N      N threads take and free at once   kill        ends by SIGKILL
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rm.h"

enum { MIB_SHIFT = 20, HIGHEST = 2000, RACES = 200, RACE_MIB = 1500, FORK_STEPS = 3, MISUSE = 2 };

static struct rm rm = { .path = "/dev/nvidiactl", .branch = 580, .minor = -1, .attr = NV_ATTR_64K };
static uint32_t last;
static int original = -1; /* the control file before it was duplicated */

static void take(const char *mib)
{
	uint32_t object, status = rm_take(&rm, strtoull(mib, NULL, 10) << MIB_SHIFT, &object);

	if (status == 0) {
		last = object;
		printf("allocated %s MiB\n", mib);
	}
	if (status == NV_NO_MEMORY)
		puts("error 2: cudaErrorMemoryAllocation");
	else if (status != 0)
		printf("status 0x%x\n", status);
}

static void wait_for_line(void)
{
	char line[16];

	puts("waiting");
	if (!fgets(line, sizeof(line), stdin))
		exit(EXIT_SUCCESS);
}

static void *take_and_free(void *given)
{
	uint32_t object, status;

	for (int i = 0; i < RACES; i++) {
		status = rm_take(&rm, (uint64_t)RACE_MIB << MIB_SHIFT, &object);
		if (status == 0 && rm_free(&rm, object) == 0)
			++*(unsigned long *)given;
		else if (status != NV_NO_MEMORY)
			rm_die("RM_ALLOC", status);
	}
	return NULL;
}

static void race(int count)
{
	pthread_t threads[16];
	unsigned long given[16] = { 0 }, sum = 0;

	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, take_and_free, &given[i]);
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		sum += given[i];
	}
	printf("raced: %s\n", sum > 0 ? "some were given" : "none was given");
}

static void stop(void)
{
	puts("staying");
	while (getchar() != EOF)
		;
	_exit(EXIT_SUCCESS);
}

/* In the parent's memory, with descriptors of its own. */
static void close_in_vfork(void)
{
	pid_t child = vfork();

	if (child == 0)
		_exit(close(rm.control));
	waitpid(child, NULL, 0);
}

static char **run(char **step);

/* The child does some steps, the parent those that follow. */
static char **run_in_child(char **step)
{
	pid_t child = fork();

	for (int i = 0; i < FORK_STEPS && *step; i++)
		step = child == 0 ? run(step) : step + (strcmp(*step, "take") == 0 ? 2 : 1);
	if (child == 0) {
		fflush(stdout);
		_exit(EXIT_SUCCESS);
	}
	waitpid(child, NULL, 0);
	return step;
}

static char **run(char **step)
{
	const char *name = *step++;

	if (strcmp(name, "take") == 0) {
		take(*step++);
	} else if (strcmp(name, "free") == 0) {
		printf("freed: %u\n", rm_free(&rm, last));
	} else if (strcmp(name, "open") == 0) {
		rm.client = rm.device = rm.subdevice = 0;
		rm_start(&rm);
	} else if (strcmp(name, "close") == 0) {
		printf("closed: %d\n", close(original >= 0 ? original : rm.control));
		original = -1;
	} else if (strcmp(name, "dup") == 0) {
		original = rm.control;
		rm.control = fcntl(original, F_DUPFD_CLOEXEC, 100);
	} else if (strcmp(name, "overwrite") == 0) {
		dup2(open("/dev/null", O_RDWR | O_CLOEXEC), rm.control);
	} else if (strcmp(name, "wait") == 0) {
		wait_for_line();
	} else if (strcmp(name, "sweep") == 0) {
		for (int fd = 3; fd < HIGHEST; fd++)
			if (fd != rm.control)
				close(fd);
	} else if (strcmp(name, "fork") == 0) {
		step = run_in_child(step);
	} else if (strcmp(name, "leave") == 0) {
		if (fork() == 0)
			stop();
	} else if (strcmp(name, "vfork") == 0) {
		close_in_vfork();
	} else if (strcmp(name, "exec") == 0) {
		*--step = "steps";
		execv("/proc/self/exe", step);
	} else if (strcmp(name, "race") == 0) {
		race(atoi(*step++));
	} else if (strcmp(name, "kill") == 0) {
		raise(SIGKILL);
	} else {
		exit(MISUSE);
	}
	return step;
}

int main(int count, char **words)
{
	(void)count;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (char **step = words + 1; *step;)
		step = run(step);
	return EXIT_SUCCESS;
}
