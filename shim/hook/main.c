/*
 * vrampack-hook: an OCI createRuntime hook. No container with a GPU memory limit starts before the node agent has put
 * that limit in force on the container's own cgroup.
 *
 * The runtime calls it when the container's cgroup exists and its first process does not. It returns 0 at once for
 * containers without a limit; for the others it identifies the container to the agent and waits for a yes. Anything
 * else (a refusal, silence, no agent, a text that it cannot read) is exit 1, and the container does not start. How
 * much memory a pod's container may use is never read from the container: the agent knows the pod's record. On a host
 * without Kubernetes the agent is told the container's environment, and may answer with a folder to mount.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "buffer.h"
#include "cgroup.h"
#include "container.h"
#include "input.h"
#include "library.h"
#include "log.h"
#include "question.h"

#define STATE_LIMIT (1u << 20) /* annotations of a pod are 256 KiB at most (Kubernetes) */
#define CONFIG_LIMIT (16u << 20) /* Linux takes 6 MiB of environment; the rest is seccomp, mounts and escapes */
#define CGROUP_LIMIT (64u << 10)
#define LINE_SIZE (16u << 10)
#define MISUSE 2

struct options {
	const char *socket_path;
	long timeout_seconds;
	bool is_optional;
};

static bool parse_seconds(const char *text, long *seconds)
{
	char *end;

	errno = 0;
	*seconds = strtol(text, &end, 10);
	return !errno && end != text && !*end && *seconds >= 1 && *seconds <= 60;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "timeout", required_argument, NULL, 't' },
		{ "if-absent", required_argument, NULL, 'a' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 's')
			options->socket_path = optarg;
		else if (option == 't' && !parse_seconds(optarg, &options->timeout_seconds))
			return log_error("--timeout takes 1 to 60 seconds");
		else if (option == 'a' && strcmp(optarg, "pass") == 0)
			options->is_optional = true;
		else if (option == 'a' && strcmp(optarg, "refuse") != 0)
			return log_error("--if-absent takes refuse or pass");
		else if (option == '?')
			return log_error("usage: vrampack-hook [--socket PATH] [--timeout SECONDS] [--if-absent refuse|pass]");
	}
	return optind == argc || log_error("unexpected argument %s", argv[optind]);
}

static bool find_cgroup(long pid, long deadline, struct cgroup *cgroup)
{
	char path[64], *text;
	size_t length;
	bool is_found;

	snprintf(path, sizeof(path), "/proc/%ld/cgroup", pid);
	if (!input_file(path, CGROUP_LIMIT, deadline, &text, &length))
		return log_error("reading %s: %s", path, strerror(errno));
	is_found = cgroup_parse(text, length, cgroup);
	free(text);
	return is_found || log_error("%s names no cgroup of the container's own", path);
}

static bool ask(const struct options *options, const struct container *container, long deadline)
{
	struct agent agent = { options->socket_path, deadline, options->is_optional };
	char line[LINE_SIZE];
	struct buffer buffer = { .text = line, .size = sizeof(line) };
	struct cgroup cgroup;
	char mount[MOUNT_SIZE] = "";
	enum agent_answer answer;

	if (!find_cgroup(container->pid, deadline, &cgroup) || !question_write(&buffer, container, &cgroup))
		return false;
	answer = agent_ask(&agent, line, buffer.used, mount);
	if (answer == AGENT_YES)
		return !mount[0] || library_mount(mount, container);
	return answer == AGENT_ABSENT && options->is_optional;
}

static bool judge(const struct options *options, struct container *container, long deadline)
{
	char path[BUNDLE_PATH_SIZE + 16], *text;
	size_t length;
	bool may_start;

	snprintf(path, sizeof(path), "%s/config.json", container->bundle);
	if (!input_file(path, CONFIG_LIMIT, deadline, &text, &length))
		return log_error("reading %s: %s", path, strerror(errno));
	may_start = container_read_config(container, text, length) &&
		    (!container->is_limited || ask(options, container, deadline));
	free(text);
	return may_start;
}

int main(int argc, char **argv)
{
	struct options options = { "/run/vrampack/hook.sock", 5, false };
	struct container container = { 0 };
	size_t length;
	long deadline;
	char *state;
	bool may_start;

	if (!parse_options(argc, argv, &options))
		return MISUSE;
	deadline = input_now() + options.timeout_seconds * 1000;
	if (!input_all(STDIN_FILENO, STATE_LIMIT, deadline, &state, &length)) {
		log_error("reading the state: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	may_start = container_read_state(&container, state, length) && judge(&options, &container, deadline);
	free(state);
	return may_start ? EXIT_SUCCESS : EXIT_FAILURE;
}
