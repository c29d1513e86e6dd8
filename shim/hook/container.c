#include "container.h"

#include "log.h"

/* A container with one of these in its environment, and not empty, is ours. */
#define MARKS(X) \
	X("NVIDIA_GPU_MEMORY_LIMIT=") \
	X("ALIYUN_COM_GPU_MEM_CONTAINER=")

/* Who the container is, by the runtimes' own annotations: field, containerd's, CRI-O's. */
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
		return log_error("\"%s\" stands twice in one object", name);
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

/* The member of a member; `at` is NULL where either is missing. */
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

static bool read_field(struct json annotations, const char *first, const char *second, struct json *field)
{
	if (!member(annotations, first, field))
		return false;
	if (!field->at && !member(annotations, second, field))
		return false;
	if (field->at && !json_is_string(*field))
		return log_error("annotation \"%s\" is no string", first);
	return true;
}

static bool read_identity(struct container *container, struct json config)
{
	struct json annotations;

	if (!member(config, "annotations", &annotations))
		return false;
	if (!annotations.at)
		return true;
#define READ_FIELD(field, first, second) \
	if (!read_field(annotations, first, second, &container->field)) \
		return false;
	IDENTITY(READ_FIELD)
#undef READ_FIELD
#define OR_NAMED(field, first, second) || container->field.at
	container->names_pod = false IDENTITY(OR_NAMED);
#undef OR_NAMED
	return true;
}

/* A pod's container is not asked: its record counts. */
static bool read_standalone(struct container *container, struct json config, struct json env)
{
	struct json root;

	if (container->names_pod)
		return true;
	if (!inner_member(config, "root", "path", &root))
		return false;
	if (root.at && !json_copy(root, container->root, sizeof(container->root)))
		return log_error("the root of the bundle is no path");
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
