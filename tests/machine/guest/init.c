/*
 * The first process of a virtual machine. It starts programs for the host and exchanges their input and output with it over
 * the second serial line.
 *
 * A single loop that never blocks on a program: input that a program has not read yet is buffered. The line has no flow
 * control, so the host sends at most a window of bytes that FRAME_TAKEN has not acknowledged.
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
	CHUNKS_MOST = 16,	/* read from one program before the next one has its turn */
	UNSENT_MOST = 1 << 16,	/* bytes of frames that are written to the line at once */
};

struct program {
	bool is_used, has_ended, is_input_over;
	uint32_t number;
	pid_t pid;
	int input, output, errors;
	char *pending;		/* standard input that it has not read yet */
	size_t pending_length;
};

static struct program programs[PROGRAMS_MOST];
static int line = -1, children = -1;
static struct caller caller;
static char unsent[UNSENT_MOST];	/* collected, because each write(2) to the line is slow */
static size_t unsent_length;

static void die(const char *what)
{
	fprintf(stderr, "init: %s: %s\n", what, strerror(errno));
	sync();
	reboot(RB_AUTOBOOT);
	_exit(1);
}

static void flush_frames(void)
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

static void send_frame(uint32_t program, uint32_t kind, const void *bytes, size_t length)
{
	const struct frame head = { program, kind, (uint32_t)length };

	if (unsent_length + sizeof(head) + length > sizeof(unsent))
		flush_frames();
	memcpy(unsent + unsent_length, &head, sizeof(head));
	if (length)
		memcpy(unsent + unsent_length + sizeof(head), bytes, length);
	unsent_length += sizeof(head) + length;
}

static void send_number(uint32_t program, uint32_t kind, uint32_t number)
{
	send_frame(program, kind, &number, sizeof(number));
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

		send_number(number, FRAME_STARTED, 0);
		send_frame(number, FRAME_ERR, why, strlen(why));
		send_number(number, FRAME_ENDED, 127);
		send_frame(number, FRAME_CLOSED, NULL, 0);
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
	send_number(number, FRAME_STARTED, (uint32_t)spawned.pid);
}

static void forward_answers(void)
{
	struct answer answer;

	while (caller_receive(&caller, &answer)) {
		send_frame(caller.number, answer.kind, answer.bytes, answer.length);
		if (answer.kind == FRAME_ENDED)
			send_frame(caller.number, FRAME_CLOSED, NULL, 0);
	}
}

/* Writes as much of the pending input as fits into the pipe. */
static void write_input(struct program *program)
{
	while (program->input >= 0 && program->pending_length) {
		ssize_t taken = write(program->input, program->pending, program->pending_length);

		if (taken < 0 && errno == EAGAIN)
			return;
		if (taken < 0) {
			close_end(&program->input);
			return;
		}
		program->pending_length -= (size_t)taken;
		memmove(program->pending, program->pending + taken, program->pending_length);
	}
	if (program->is_input_over)
		close_end(&program->input);
}

static void buffer_input(struct program *program, const char *bytes, size_t length)
{
	char *pending;

	if (!length) {
		program->is_input_over = true;
		return;
	}
	pending = realloc(program->pending, program->pending_length + length);
	if (!pending)
		die("memory");
	memcpy(pending + program->pending_length, bytes, length);
	program->pending = pending;
	program->pending_length += length;
}

static void handle_frame(void)
{
	static char bytes[FRAME_MOST + 1];
	struct frame head;
	struct program *program;

	receive(&head, sizeof(head));
	if (head.length > FRAME_MOST)
		die("a frame longer than there is room for");
	receive(bytes, head.length);
	bytes[head.length] = '\0';
	send_number(0, FRAME_TAKEN, (uint32_t)sizeof(head) + head.length);
	program = find(head.program);
	if (head.kind == FRAME_SPAWN)
		start(head.program, bytes, head.length);
	else if (head.kind == FRAME_CALL && !caller_begin(&caller, head.program, bytes, head.length))
		die("no process for a system call");
	else if (head.kind == FRAME_OFF)
		reboot(RB_AUTOBOOT);
	else if (program && head.kind == FRAME_INPUT)
		buffer_input(program, bytes, head.length);
	else if (program && !program->has_ended && head.kind == FRAME_SIGNAL && head.length == 1)
		kill(program->pid, bytes[0]);
	if (program)
		write_input(program);
}

/* Sends what can be read now, up to CHUNKS_MOST chunks. False after the end of the file. */
static bool forward_output(struct program *program, int *end, uint32_t kind)
{
	char bytes[CHUNK];

	for (int turn = 0; turn < CHUNKS_MOST && *end >= 0; turn++) {
		ssize_t got = read(*end, bytes, sizeof(bytes));

		if (got < 0 && errno == EAGAIN)
			break;
		if (got <= 0)
			close_end(end);
		else
			send_frame(program->number, kind, bytes, (size_t)got);
	}
	return *end >= 0;
}

static void forward_outputs(struct program *program)
{
	bool is_open = forward_output(program, &program->output, FRAME_OUT);

	is_open = forward_output(program, &program->errors, FRAME_ERR) || is_open;
	if (is_open || !program->has_ended)
		return;
	send_frame(program->number, FRAME_CLOSED, NULL, 0);
	close_end(&program->input);
	free(program->pending);
	*program = (struct program){ 0 };
}

static void report_caller_exit(int status)
{
	forward_answers();
	if (caller.is_busy) {
		send_number(caller.number, FRAME_ENDED, (uint32_t)-WTERMSIG(status));
		send_frame(caller.number, FRAME_CLOSED, NULL, 0);
	}
	close_end(&caller.socket);
	caller.is_busy = false;
}

static void report_exit(pid_t pid, int status)
{
	if (pid == caller.pid && caller.socket >= 0) {
		report_caller_exit(status);
		return;
	}
	for (size_t i = 0; i < PROGRAMS_MOST; i++) {
		struct program *program = &programs[i];

		if (!program->is_used || program->has_ended || program->pid != pid)
			continue;
		forward_outputs(program);
		program->has_ended = true;
		send_number(program->number, FRAME_ENDED,
			   (uint32_t)(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)));
		forward_outputs(program);
		return;
	}
}

static void reap_children(void)
{
	struct signalfd_siginfo one;
	int status;

	while (read(children, &one, sizeof(one)) == sizeof(one))
		;
	for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
		report_exit(pid, status);
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
		if (programs[i].pending_length)
			count = watch(watched, count, programs[i].input, POLLOUT);
	}
	if (poll(watched, count, -1) < 0 && errno != EINTR)
		die("poll");
	forward_answers();
	if (watched[1].revents)
		reap_children();
	for (size_t i = 0; i < PROGRAMS_MOST; i++) {
		if (!programs[i].is_used)
			continue;
		write_input(&programs[i]);
		forward_outputs(&programs[i]);
	}
	if (watched[0].revents)
		handle_frame();
	flush_frames();
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
	/* One interrupt for 14 bytes instead of 8. It works without, only slower. */
	folders_write("/sys/class/tty/ttyS1/rx_trig_bytes", "14");
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
	send_frame(0, FRAME_READY, NULL, 0);
	flush_frames();
	for (;;)
		serve_once();
}
