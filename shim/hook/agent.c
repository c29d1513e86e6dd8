#include "agent.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "input.h"
#include "json.h"
#include "log.h"

#define ANSWER_SIZE 4096
#define AGAIN_MS 50 /* guessed: soon enough for an agent that is being replaced, cheap while it is */

static bool is_absence(int why)
{
	return why == ENOENT || why == ECONNREFUSED;
}

/* A connected socket, or -1 and errno. A unix connect never stays in progress: it works, fails, or says EAGAIN. */
static int connect_once(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int why;

	if (fd < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
		return fd;
	why = errno;
	close(fd);
	errno = why;
	return -1;
}

/* An agent that is being restarted is back within the deadline: wait for it, unless it is optional. */
static int connect_until(const struct agent *agent, const struct sockaddr_un *address)
{
	for (;;) {
		int fd = connect_once(address);
		bool may_wait = errno == EAGAIN || errno == EINTR || (is_absence(errno) && !agent->is_optional);

		if (fd >= 0 || !may_wait || input_now() >= agent->deadline)
			return fd;
		poll(NULL, 0, AGAIN_MS);
	}
}

static bool send_all(int fd, const char *line, size_t length, long deadline)
{
	while (length > 0) {
		ssize_t count;

		if (!input_wait(fd, POLLOUT, deadline))
			return false;
		count = send(fd, line, length, MSG_NOSIGNAL);
		if (count < 0) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			return false;
		}
		line += count;
		length -= (size_t)count;
	}
	return true;
}

/* How many bytes stand before the newline, or -1 and errno: EPROTO when there was none. */
static ssize_t receive_line(int fd, char *to, size_t size, long deadline)
{
	size_t used = 0;

	while (used < size) {
		ssize_t count;
		char *newline;

		if (!input_wait(fd, POLLIN, deadline))
			return -1;
		count = recv(fd, to + used, size - used, 0);
		if (count < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (count < 0)
			return -1;
		if (count == 0)
			break;
		newline = memchr(to + used, '\n', (size_t)count);
		if (newline)
			return newline - to;
		used += (size_t)count;
	}
	errno = EPROTO;
	return -1;
}

/* Control characters would reach a terminal through the runtime's log. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7F)
			*text = ' ';
}

/* False if it occurs twice, or is not a string that fits. */
static bool read_mount(struct json answer, char mount[MOUNT_SIZE])
{
	struct json member;
	enum json_found found = json_member(answer, "mount", &member);

	mount[0] = '\0';
	return found == JSON_ABSENT || (found == JSON_FOUND && json_copy(member, mount, MOUNT_SIZE));
}

static enum agent_answer judge(const char *line, size_t length, char mount[MOUNT_SIZE])
{
	char error[ANSWER_SIZE] = "no reason given";
	struct json answer, member;

	if (!json_read(line, length, &answer) || !read_mount(answer, mount))
		goto unreadable;
	if (json_member(answer, "ok", &member) != JSON_FOUND)
		goto unreadable;
	if (json_is_true(member))
		return AGENT_YES;
	if (json_member(answer, "error", &member) == JSON_FOUND && json_copy(member, error, sizeof(error)))
		make_printable(error);
	log_error("refused: %s", error);
	return AGENT_NO;
unreadable:
	log_error("the agent's answer is not readable");
	return AGENT_NO;
}

enum agent_answer agent_ask(const struct agent *agent, const char *line, size_t length, char mount[MOUNT_SIZE])
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	enum agent_answer answer = AGENT_NO;
	char reply[ANSWER_SIZE];
	ssize_t count;
	int fd;

	if (strlen(agent->socket_path) >= sizeof(address.sun_path)) {
		log_error("socket path %s is too long", agent->socket_path);
		return AGENT_NO;
	}
	strcpy(address.sun_path, agent->socket_path);
	fd = connect_until(agent, &address);
	if (fd < 0) {
		answer = is_absence(errno) ? AGENT_ABSENT : AGENT_NO;
		log_error("no agent at %s: %s", agent->socket_path, strerror(errno));
		return answer;
	}
	if (!send_all(fd, line, length, agent->deadline)) {
		log_error("asking the agent: %s", strerror(errno));
		goto close_fd;
	}
	count = receive_line(fd, reply, sizeof(reply), agent->deadline);
	if (count < 0) {
		log_error("no answer from the agent: %s", strerror(errno));
		goto close_fd;
	}
	answer = judge(reply, (size_t)count, mount);
close_fd:
	close(fd);
	return answer;
}
