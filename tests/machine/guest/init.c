/*
 * The first process of a machine: starts programs for the host and carries their bytes, on the second serial line.
 *
 * One loop that never waits for a program: what a program does not read yet is kept. The host sends no more than a window
 * of bytes before it hears FRAME_TAKEN, because the line has no way to make it wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "caller.h"
#include "folders.h"
#include "frames.h"
#include "spawn.h"

#define LINE "/dev/ttyS1"

enum {
	PROGRAMS_MOST = 64,
	CHUNK = 4096,
	CHUNKS_MOST = 16,	/* of one program, before the others have their turn */
	UNSENT_MOST = 1 << 16,	/* bytes that are sent together */
};

struct program {
	bool is_used, has_ended, is_input_over;
	uint32_t number;
	pid_t pid;
	int input, output, errors;
	char *kept;		/* for its standard input */
	size_t kept_length;
};

static struct program programs[PROGRAMS_MOST];
static int line = -1, children = -1;
static struct caller caller;
static char unsent[UNSENT_MOST];	/* every write(2) to the line takes long */
static size_t unsent_length;

static void die(const char *what)
{
	fprintf(stderr, "init: %s: %s\n", what, strerror(errno));
	sync();
	reboot(RB_AUTOBOOT);
	_exit(1);
}

static void send_unsent(void)
{
	for (const char *at = unsent; unsent_length;) {
		ssize_t sent = write(line, at, unsent_length);

		if (sent < 0 && errno != EINTR)
			die(LINE);
		if (sent > 0) {
			at += sent;
			unsent_length -= (size_t)sent;
		}
	}
}

static void say(uint32_t program, uint32_t kind, const void *bytes, size_t length)
{
	const struct frame head = { program, kind, (uint32_t)length };

	if (unsent_length + sizeof(head) + length > sizeof(unsent))
		send_unsent();
	memcpy(unsent + unsent_length, &head, sizeof(head));
	if (length)
		memcpy(unsent + unsent_length + sizeof(head), bytes, length);
	unsent_length += sizeof(head) + length;
}

static void say_number(uint32_t program, uint32_t kind, uint32_t number)
{
	say(program, kind, &number, sizeof(number));
}

static void receive(void *bytes, size_t length)
{
	for (char *at = bytes; length;) {
		ssize_t got = read(line, at, length);

		if (got <= 0 && errno != EINTR)
			die(LINE);
		if (got > 0) {
			at += got;
			length -= (size_t)got;
		}
	}
}

static struct program *find(uint32_t number)
{
	for (size_t i = 0; i < PROGRAMS_MOST; i++)
		if (programs[i].is_used && programs[i].number == number)
			return &programs[i];
	return NULL;
}

static struct program *find_free(void)
{
	for (size_t i = 0; i < PROGRAMS_MOST; i++)
		if (!programs[i].is_used)
			return &programs[i];
	errno = EAGAIN;
	return NULL;
}

static void close_end(int *end)
{
	if (*end >= 0)
		close(*end);
	*end = -1;
}

static void start(uint32_t number, char *texts, size_t length)
{
	struct program *program = find_free();
	struct spawned spawned;

	if (!program || !spawn(texts, length, &spawned)) {
		const char *why = strerror(errno);

		say_number(number, FRAME_STARTED, 0);
		say(number, FRAME_ERR, why, strlen(why));
		say_number(number, FRAME_ENDED, 127);
		say(number, FRAME_CLOSED, NULL, 0);
		return;
	}
	*program = (struct program){
		.is_used = true,
		.number = number,
		.pid = spawned.pid,
		.input = spawned.input,
		.output = spawned.output,
		.errors = spawned.errors,
	};
	say_number(number, FRAME_STARTED, (uint32_t)spawned.pid);
}

static void carry_answers(void)
{
	struct answer answer;

	while (caller_take(&caller, &answer)) {
		say(caller.number, answer.kind, answer.bytes, answer.length);
		if (answer.kind == FRAME_ENDED)
			say(caller.number, FRAME_CLOSED, NULL, 0);
	}
}

/* As much of what is kept as it takes now. */
static void feed(struct program *program)
{
	while (program->input >= 0 && program->kept_length) {
		ssize_t taken = write(program->input, program->kept, program->kept_length);

		if (taken < 0 && errno == EAGAIN)
			return;
		if (taken < 0) {
			close_end(&program->input);
			return;
		}
		program->kept_length -= (size_t)taken;
		memmove(program->kept, program->kept + taken, program->kept_length);
	}
	if (program->is_input_over)
		close_end(&program->input);
}

static void keep(struct program *program, const char *bytes, size_t length)
{
	char *kept;

	if (!length) {
		program->is_input_over = true;
		return;
	}
	kept = realloc(program->kept, program->kept_length + length);
	if (!kept)
		die("memory");
	memcpy(kept + program->kept_length, bytes, length);
	program->kept = kept;
	program->kept_length += length;
}

static void obey(void)
{
	static char bytes[FRAME_MOST + 1];
	struct frame head;
	struct program *program;

	receive(&head, sizeof(head));
	if (head.length > FRAME_MOST)
		die("a frame longer than there is room for");
	receive(bytes, head.length);
	bytes[head.length] = '\0';
	say_number(0, FRAME_TAKEN, (uint32_t)sizeof(head) + head.length);
	program = find(head.program);
	if (head.kind == FRAME_SPAWN)
		start(head.program, bytes, head.length);
	else if (head.kind == FRAME_CALL && !caller_begin(&caller, head.program, bytes, head.length))
		die("no process for a system call");
	else if (head.kind == FRAME_OFF)
		reboot(RB_AUTOBOOT);
	else if (program && head.kind == FRAME_INPUT)
		keep(program, bytes, head.length);
	else if (program && !program->has_ended && head.kind == FRAME_SIGNAL && head.length == 1)
		kill(program->pid, bytes[0]);
	if (program)
		feed(program);
}

/* Some of what is there now; false at its end. */
static bool carry(struct program *program, int *end, uint32_t kind)
{
	char bytes[CHUNK];

	for (int turn = 0; turn < CHUNKS_MOST && *end >= 0; turn++) {
		ssize_t got = read(*end, bytes, sizeof(bytes));

		if (got < 0 && errno == EAGAIN)
			break;
		if (got <= 0)
			close_end(end);
		else
			say(program->number, kind, bytes, (size_t)got);
	}
	return *end >= 0;
}

static void carry_both(struct program *program)
{
	bool is_open = carry(program, &program->output, FRAME_OUT);

	is_open = carry(program, &program->errors, FRAME_ERR) || is_open;
	if (is_open || !program->has_ended)
		return;
	say(program->number, FRAME_CLOSED, NULL, 0);
	close_end(&program->input);
	free(program->kept);
	*program = (struct program){ 0 };
}

static void bury_caller(int status)
{
	carry_answers();
	if (caller.is_busy) {
		say_number(caller.number, FRAME_ENDED, (uint32_t)-WTERMSIG(status));
		say(caller.number, FRAME_CLOSED, NULL, 0);
	}
	close_end(&caller.socket);
	caller.is_busy = false;
}

static void bury(pid_t pid, int status)
{
	if (pid == caller.pid && caller.socket >= 0)
		bury_caller(status);
	for (size_t i = 0; i < PROGRAMS_MOST; i++) {
		struct program *program = &programs[i];

		if (!program->is_used || program->has_ended || program->pid != pid)
			continue;
		carry_both(program);
		program->has_ended = true;
		say_number(program->number, FRAME_ENDED,
			   (uint32_t)(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)));
		carry_both(program);
		return;
	}
}

static void bury_all(void)
{
	struct signalfd_siginfo one;
	int status;

	while (read(children, &one, sizeof(one)) == sizeof(one))
		;
	for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
		bury(pid, status);
}

static size_t watch(struct pollfd *watched, size_t count, int file, short events)
{
	if (file < 0)
		return count;
	watched[count] = (struct pollfd){ .fd = file, .events = events };
	return count + 1;
}

static void serve_once(void)
{
	struct pollfd watched[3 + 3 * PROGRAMS_MOST];
	size_t count = watch(watched, 0, line, POLLIN);

	count = watch(watched, count, children, POLLIN);
	count = watch(watched, count, caller.socket, POLLIN);
	for (size_t i = 0; i < PROGRAMS_MOST; i++) {
		if (!programs[i].is_used)
			continue;
		count = watch(watched, count, programs[i].output, POLLIN);
		count = watch(watched, count, programs[i].errors, POLLIN);
		if (programs[i].kept_length)
			count = watch(watched, count, programs[i].input, POLLOUT);
	}
	if (poll(watched, count, -1) < 0 && errno != EINTR)
		die("poll");
	carry_answers();
	if (watched[1].revents)
		bury_all();
	for (size_t i = 0; i < PROGRAMS_MOST; i++) {
		if (!programs[i].is_used)
			continue;
		feed(&programs[i]);
		carry_both(&programs[i]);
	}
	if (watched[0].revents)
		obey();
	send_unsent();
}

static void open_line(void)
{
	struct termios raw;

	if (mknod(LINE, S_IFCHR | 0600, makedev(4, 65)) && errno != EEXIST)
		die(LINE);
	line = open(LINE, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (line < 0 || tcgetattr(line, &raw))
		die(LINE);
	cfmakeraw(&raw);
	raw.c_cflag |= CLOCAL;
	cfsetspeed(&raw, B115200);
	if (tcsetattr(line, TCSANOW, &raw))
		die(LINE);
	/* An interrupt for 14 bytes instead of 8; a port that cannot works as well. */
	folders_say("/sys/class/tty/ttyS1/rx_trig_bytes", "14");
}

static void open_children(void)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &ends, NULL))
		die("signals");
	children = signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);
	if (children < 0)
		die("signalfd");
}

int main(void)
{
	const struct rlimit core = { 0, 0 };

	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_CORE, &core);
	if (!folders_make(getenv("old_cgroups") != NULL))
		die("folders");
	open_line();
	open_children();
	if (!caller_start(&caller))
		die("no process for system calls");
	say(0, FRAME_READY, NULL, 0);
	send_unsent();
	for (;;)
		serve_once();
}
