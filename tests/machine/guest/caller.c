#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "call.h"
#include "caller.h"

enum {
	WORDS_MOST = 8,
	SOCKET = 3,
};

static void send_answer(uint32_t kind, const void *bytes, size_t length)
{
	struct answer answer = { .kind = kind, .length = (uint32_t)length };

	if (length)
		memcpy(answer.bytes, bytes, length);
	if (send(SOCKET, &answer, offsetof(struct answer, bytes) + length, 0) < 0)
		_exit(1);
}

/* Returns the input that follows the words, or NULL if the content is malformed. */
static char *split(char *content, size_t length, char **words)
{
	char *text = content;
	size_t count = 0;

	for (; text < content + length && *text; text += strlen(text) + 1) {
		if (count == WORDS_MOST)
			return NULL;
		words[count++] = text;
	}
	words[count] = NULL;
	return text < content + length ? text + 1 : NULL;
}

static uint32_t call_with(char *content, size_t length, FILE *output)
{
	char *words[WORDS_MOST + 1], *input = split(content, length, words);
	FILE *stream = input ? fmemopen(input, (size_t)(content + length - input), "r") : NULL;
	uint32_t code;

	if (!stream)
		return EINVAL;
	code = (uint32_t)call(words, stream, output);
	fclose(stream);
	return code;
}

static void serve(char *content, size_t length)
{
	char *said = NULL;
	size_t said_length = 0;
	FILE *output = open_memstream(&said, &said_length);
	uint32_t code;

	if (!output)
		_exit(1);
	code = call_with(content, length, output);
	fclose(output);
	for (size_t at = 0; at < said_length;) {
		size_t left = said_length - at, part = left < ANSWER_MOST ? left : ANSWER_MOST;

		send_answer(FRAME_OUT, said + at, part);
		at += part;
	}
	free(said);
	send_answer(FRAME_ENDED, &code, sizeof(code));
}

static void serve_all(int socket)
{
	static char content[FRAME_MOST + 1];
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (socket != SOCKET && dup2(socket, SOCKET) < 0)
		_exit(1);
	syscall(SYS_close_range, SOCKET + 1, ~0u, 0);
	setsid();
	for (;;) {
		ssize_t got = recv(SOCKET, content, FRAME_MOST, 0);

		if (got <= 0)
			_exit(0);
		content[got] = '\0';
		serve(content, (size_t)got);
	}
}

bool caller_start(struct caller *caller)
{
	int ends[2];
	pid_t pid;

	*caller = (struct caller){ .socket = -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return false;
	pid = fork();
	if (!pid)
		serve_all(ends[1]);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return false;
	}
	*caller = (struct caller){ .pid = pid, .socket = ends[0] };
	return true;
}

bool caller_begin(struct caller *caller, uint32_t number, const char *content, size_t length)
{
	if (caller->is_busy || caller->socket < 0) {
		if (caller->socket >= 0)
			close(caller->socket);
		if (!caller_start(caller))
			return false;
	}
	caller->number = number;
	caller->is_busy = send(caller->socket, content, length, 0) == (ssize_t)length;
	return caller->is_busy;
}

bool caller_receive(struct caller *caller, struct answer *answer)
{
	ssize_t got = caller->socket < 0 ? -1 : recv(caller->socket, answer, sizeof(*answer), MSG_DONTWAIT);

	if (got < (ssize_t)offsetof(struct answer, bytes))
		return false;
	if (answer->kind == FRAME_ENDED)
		caller->is_busy = false;
	return true;
}
