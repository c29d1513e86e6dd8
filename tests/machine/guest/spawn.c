/*
 * Starts one program as the host's texts describe it, each of them `key=value`:
 *
 *   arg=TEXT     an argument; the first one is the path of the program
 *   env=N=V      an environment variable; the program has no others
 *   cgroup=PATH  relative to the root of the cgroups, created if missing; in every mounted hierarchy
 *   uid=N        user and group, without supplementary groups
 *   caps=HEX     a mask of the capabilities that it keeps
 *   pidns=       a new PID namespace with its own /proc
 *   pidns=PID    the PID namespace of that process
 *   userns=      a new user namespace, in which it is root
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "call.h"
#include "folders.h"
#include "spawn.h"

enum {
	TEXTS_MOST = 256,
	ROOM = 1 << 20,		/* capacity of a pipe: a program that writes more waits for the reader */
	NOT_STARTED = 127,	/* as in a shell */
	STACK_SIZE = 1 << 16,	/* for a child until it calls exec */
};

struct wanted {
	char *arguments[TEXTS_MOST + 1], *environment[TEXTS_MOST + 1];
	size_t n_arguments, n_environment;
	const char *cgroup, *uid, *capabilities, *pidns;
	bool has_user_namespace;
};

struct pipes {
	int input[2], output[2], errors[2];
};

static bool is_key(char *text, const char *key, char **value)
{
	size_t length = strlen(key);

	if (strncmp(text, key, length) || text[length] != '=')
		return false;
	*value = text + length + 1;
	return true;
}

static bool append(char **list, size_t *count, char *text)
{
	if (*count == TEXTS_MOST)
		return false;
	list[(*count)++] = text;
	return true;
}

static bool parse_text(struct wanted *wanted, char *text)
{
	char *value;

	if (is_key(text, "arg", &value))
		return append(wanted->arguments, &wanted->n_arguments, value);
	if (is_key(text, "env", &value))
		return append(wanted->environment, &wanted->n_environment, value);
	if (is_key(text, "cgroup", &value))
		wanted->cgroup = value;
	else if (is_key(text, "uid", &value))
		wanted->uid = value;
	else if (is_key(text, "caps", &value))
		wanted->capabilities = value;
	else if (is_key(text, "pidns", &value))
		wanted->pidns = value;
	else if (is_key(text, "userns", &value))
		wanted->has_user_namespace = true;
	else
		return false;
	return true;
}

static bool parse_texts(char *texts, size_t length, struct wanted *wanted)
{
	memset(wanted, 0, sizeof(*wanted));
	for (char *text = texts; text < texts + length; text += strlen(text) + 1)
		if (!parse_text(wanted, text))
			goto wrong;
	if (wanted->n_arguments)
		return true;
wrong:
	errno = EINVAL;
	return false;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(NOT_STARTED);
}

static void limit_capabilities(const char *mask_text)
{
	uint64_t mask = strtoull(mask_text, NULL, 16);
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[2];

	for (int each = 0; prctl(PR_CAPBSET_READ, each) >= 0; each++)
		if (!(mask >> each & 1) && prctl(PR_CAPBSET_DROP, each))
			fail("capabilities");
	for (int half = 0; half < 2; half++) {
		uint32_t bits = (uint32_t)(mask >> 32 * half);

		sets[half] = (struct __user_cap_data_struct){ bits, bits, bits };
	}
	if (syscall(SYS_capset, &head, sets))
		fail("capabilities");
}

static void enter_user_namespace(void)
{
	if (unshare(CLONE_NEWUSER))
		fail("user namespace");
	if (!folders_write("/proc/self/setgroups", "deny") || !folders_write("/proc/self/uid_map", "0 0 1") ||
	    !folders_write("/proc/self/gid_map", "0 0 1"))
		fail("users of the namespace");
}

static void switch_user(const char *uid)
{
	unsigned int number = (unsigned int)strtoul(uid, NULL, 10);

	if (setgroups(0, NULL) || setgid(number) || setuid(number))
		fail("user");
}

static void prepare(const struct wanted *wanted, const struct pipes *pipes)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(pipes->input[0], 0) < 0 || dup2(pipes->output[1], 1) < 0 || dup2(pipes->errors[1], 2) < 0)
		_exit(NOT_STARTED);
	/* A call does not exec, so O_CLOEXEC closes nothing; with the other end of its own input open it would wait forever. */
	syscall(SYS_close_range, 3, ~0u, 0);
	setsid();
	if (wanted->cgroup && !folders_enter(wanted->cgroup))
		fail(wanted->cgroup);
	if (wanted->pidns && !*wanted->pidns)
		if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL))
			fail("its own /proc");
	if (wanted->has_user_namespace)
		enter_user_namespace();
	if (wanted->capabilities)
		limit_capabilities(wanted->capabilities);
	if (wanted->uid)
		switch_user(wanted->uid);
}

/* Only future children are affected: the caller stays in its own PID namespace. */
static bool set_namespace_of_children(const char *pid)
{
	char path[64];
	int file;
	bool is_done;

	snprintf(path, sizeof(path), "/proc/%s/ns/pid", pid);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	is_done = !setns(file, CLONE_NEWPID);
	close(file);
	return is_done;
}

static bool is_call(const struct wanted *wanted)
{
	return !strcmp(wanted->arguments[0], CALL);
}

struct child {
	const struct wanted *wanted;
	const struct pipes *pipes;
};

static int run_child(void *given)
{
	const struct child *child = given;
	const struct wanted *wanted = child->wanted;

	prepare(wanted, child->pipes);
	if (is_call(wanted))
		_exit(call((char **)wanted->arguments + 1, stdin, stdout));
	execve(wanted->arguments[0], wanted->arguments, wanted->environment);
	fail(wanted->arguments[0]);
	return NOT_STARTED;
}

/* Like vfork(2): no page tables are copied, and this process waits until the child calls exec. */
static pid_t fork_without_copy(struct child *child)
{
	static _Alignas(16) char stack[STACK_SIZE];

	return clone(run_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, child);
}

static pid_t fork_into(const struct wanted *wanted, const struct pipes *pipes)
{
	struct child child = { wanted, pipes };
	bool is_joining = wanted->pidns && *wanted->pidns;
	unsigned long namespaces = wanted->pidns && !is_joining ? CLONE_NEWPID | CLONE_NEWNS : 0;
	pid_t pid;

	if (!wanted->pidns && !wanted->has_user_namespace && !is_call(wanted))
		return fork_without_copy(&child);
	if (is_joining && !set_namespace_of_children(wanted->pidns))
		return -1;
	pid = (pid_t)syscall(SYS_clone, SIGCHLD | namespaces, NULL, NULL, NULL, NULL);
	if (!pid)
		run_child(&child);
	if (is_joining && pid > 0 && !set_namespace_of_children("self"))
		abort();
	return pid;
}

static void close_pair(int pair[2])
{
	close(pair[0]);
	close(pair[1]);
}

static bool open_pipes(struct pipes *pipes)
{
	if (pipe2(pipes->input, O_CLOEXEC))
		return false;
	if (pipe2(pipes->output, O_CLOEXEC))
		goto close_input;
	if (pipe2(pipes->errors, O_CLOEXEC))
		goto close_output;
	fcntl(pipes->output[1], F_SETPIPE_SZ, ROOM);
	fcntl(pipes->input[1], F_SETFL, O_NONBLOCK);
	fcntl(pipes->output[0], F_SETFL, O_NONBLOCK);
	fcntl(pipes->errors[0], F_SETFL, O_NONBLOCK);
	return true;

close_output:
	close_pair(pipes->output);
close_input:
	close_pair(pipes->input);
	return false;
}

bool spawn(char *texts, size_t length, struct spawned *spawned)
{
	struct wanted wanted;
	struct pipes pipes;
	pid_t pid;

	if (!parse_texts(texts, length, &wanted) || !open_pipes(&pipes))
		return false;
	pid = fork_into(&wanted, &pipes);
	close(pipes.input[0]);
	close(pipes.output[1]);
	close(pipes.errors[1]);
	*spawned = (struct spawned){ pid, pipes.input[1], pipes.output[0], pipes.errors[0] };
	if (pid > 0)
		return true;
	close(pipes.input[1]);
	close(pipes.output[0]);
	close(pipes.errors[0]);
	return false;
}
