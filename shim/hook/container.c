#include "container.h"

#include "say.h"

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
		return say_error("\"%s\" stands twice in one object", name);
	return true;
}

static bool read_state(struct container *container, struct json state)
{
	struct json pid, bundle;

	if (!member(state, "pid", &pid) || !member(state, "bundle", &bundle) || !member(state, "id", &container->id))
		return false;
	if (!pid.at || !json_count(pid, &container->pid) || container->pid == 0)
		return say_error("the state names no pid");
	if (!bundle.at || !json_copy(bundle, container->bundle, sizeof(container->bundle)))
		return say_error("the state names no bundle");
	if (!container->id.at || !json_is_string(container->id))
		return say_error("the state names no id");
	return true;
}

bool container_state(struct container *container, const char *text, size_t length)
{
	struct json state;

	if (!json_read(text, length, &state))
		return say_error("the state on standard input is not JSON");
	return read_state(container, state);
}

static bool is_mark(struct json entry)
{
#define OR_CONTINUES(mark) || json_continues(entry, mark)
	return false MARKS(OR_CONTINUES);
#undef OR_CONTINUES
}

static bool read_environment(struct container *container, struct json config)
{
	struct json process, env, name, entry;
	struct json_walk walk;

	if (!member(config, "process", &process))
		return false;
	if (!process.at)
		return true;
	if (!member(process, "env", &env))
		return false;
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
		return say_error("annotation \"%s\" is no string", first);
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
	return true;
}

bool container_config(struct container *container, const char *text, size_t length)
{
	struct json config;

	if (!json_read(text, length, &config))
		return say_error("%s/config.json is not JSON", container->bundle);
	return read_environment(container, config) && (!container->is_limited || read_identity(container, config));
}
