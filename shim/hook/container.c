#include "container.h"

#include <string.h>

#include "log.h"

/* A container with one of these in its environment, and not empty, is ours. */
#define MARKS(X) \
	X("NVIDIA_GPU_MEMORY_LIMIT=") \
	X("ALIYUN_COM_GPU_MEM_CONTAINER=")

/* What identifies the container in the runtimes' own annotations: field, containerd's, CRI-O's. */
#define IDENTITY(X) \
	X(namespace, "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace") \
	X(pod, "io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name") \
	X(uid, "io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid") \
	X(name, "io.kubernetes.cri.container-name", "io.kubernetes.container.name")

static const struct json nothing;

static bool member(struct json object, const char *name, struct json *value)
{
	*value = nothing;
	if (json_member(object, name, value) == JSON_TWICE)
		return log_error("\"%s\" occurs twice in one object", name);
	return true;
}

static bool read_state(struct container *container, struct json state)
{
	struct json pid, bundle;

	if (!member(state, "pid", &pid) || !member(state, "bundle", &bundle) || !member(state, "id", &container->id))
		return false;
	if (!pid.at || !json_count(pid, &container->pid) || container->pid == 0)
		return log_error("the state names no pid");
	if (!bundle.at || !json_copy(bundle, container->bundle, sizeof(container->bundle)))
		return log_error("the state names no bundle");
	if (!container->id.at || !json_is_string(container->id))
		return log_error("the state names no id");
	return true;
}

bool container_read_state(struct container *container, const char *text, size_t length)
{
	struct json state;

	if (!json_read(text, length, &state))
		return log_error("the state on standard input is not JSON");
	return read_state(container, state);
}

static bool is_mark(struct json entry)
{
#define OR_CONTINUES(mark) || json_continues(entry, mark)
	return false MARKS(OR_CONTINUES);
#undef OR_CONTINUES
}

/* A member of a member; `at` is NULL where either is missing. */
static bool inner_member(struct json config, const char *outer, const char *inner, struct json *value)
{
	struct json object;

	*value = nothing;
	return member(config, outer, &object) && (!object.at || member(object, inner, value));
}

static bool read_environment(struct container *container, struct json env)
{
	struct json name, entry;
	struct json_walk walk;

	if (!env.at || !json_walk(env, &walk))
		return true;
	while (json_next(&walk, &name, &entry))
		if (is_mark(entry))
			container->is_limited = true;
	return true;
}

static bool is_same(struct json one, struct json other)
{
	size_t size = (size_t)(one.end - one.at);

	return size == (size_t)(other.end - other.at) && memcmp(one.at, other.at, size) == 0;
}

/*
 * One runtime writes its own names only. CRI-O copies a pod's annotations into the bundle, and containerd those that a
 * handler's `pod_annotations` names, so names of the other one are the tenant's: a name that only they have is as bad
 * as one that differs.
 */
static bool read_field(struct json annotations, const char *names[static 2], struct json found[static 2])
{
	for (int i = 0; i < 2; i++) {
		if (!member(annotations, names[i], &found[i]))
			return false;
		if (found[i].at && !json_is_string(found[i]))
			return log_error("annotation \"%s\" is not a string", names[i]);
	}
	if (found[0].at && found[1].at && !is_same(found[0], found[1]))
		return log_error("annotations \"%s\" and \"%s\" differ: remove the one that the pod sets",
				 names[0], names[1]);
	return true;
}

static bool read_identity(struct container *container, struct json config)
{
	struct json annotations;
	bool alone[2] = {false, false};

	if (!member(config, "annotations", &annotations))
		return false;
	if (!annotations.at)
		return true;
#define READ_FIELD(field, containerd, crio) \
	{ \
		struct json found[2]; \
\
		if (!read_field(annotations, (const char *[]){containerd, crio}, found)) \
			return false; \
		alone[0] |= found[0].at && !found[1].at; \
		alone[1] |= found[1].at && !found[0].at; \
		container->field = found[0].at ? found[0] : found[1]; \
		container->names_pod |= container->field.at != NULL; \
	}
	IDENTITY(READ_FIELD)
#undef READ_FIELD
	if (alone[0] && alone[1])
		return log_error("annotations of containerd and of CRI-O each name a part of the container: "
				 "remove those that the pod sets");
	return true;
}

/* Skipped for a pod's container: its record counts. */
static bool read_standalone(struct container *container, struct json config, struct json env)
{
	struct json root;

	if (container->names_pod)
		return true;
	if (!inner_member(config, "root", "path", &root))
		return false;
	if (root.at && !json_copy(root, container->root, sizeof(container->root)))
		return log_error("the bundle's root is not a path");
	return !env.at || variables_read(&container->variables, env);
}

bool container_read_config(struct container *container, const char *text, size_t length)
{
	struct json config, env;

	if (!json_read(text, length, &config))
		return log_error("%s/config.json is not JSON", container->bundle);
	if (!inner_member(config, "process", "env", &env) || !read_environment(container, env))
		return false;
	if (!container->is_limited)
		return true;
	return read_identity(container, config) && read_standalone(container, config, env);
}
