#include "splice.h"

#include "json.h"
#include "log.h"

/* Where the new text goes, and which part of the old one it replaces. */
struct cut {
	const char *from;
	const char *to;
	/* How deep it was found: 0 for config.json itself, 1 in its hooks, 2 in their createRuntime. */
	int depth;
	/* Something follows in the same brackets. */
	bool has_more;
};

static bool is_empty(struct json value)
{
	struct json_walk walk;
	struct json name, member;

	return !json_walk(value, &walk) || !json_next(&walk, &name, &member);
}

/* Goes down as far as the names exist. A null member, as some engines write it, counts as missing. */
static bool find_place(struct json at, struct cut *cut)
{
	static const char *const names[] = { "hooks", "createRuntime" };
	struct json inner;

	if (*at.at != '{')
		return false;
	*cut = (struct cut){ at.at + 1, at.at + 1, 0, !is_empty(at) };
	for (int depth = 0; depth < 2; depth++) {
		enum json_found found = json_member(at, names[depth], &inner);

		if (found == JSON_ABSENT)
			return true;
		if (found == JSON_TWICE)
			return false;
		if (*inner.at == 'n') {
			*cut = (struct cut){ inner.at, inner.end, depth + 1, false };
			return true;
		}
		if (*inner.at != (depth == 0 ? '{' : '['))
			return false;
		*cut = (struct cut){ inner.at + 1, inner.at + 1, depth + 1, !is_empty(inner) };
		at = inner;
	}
	return true;
}

bool splice_hook(struct buffer *buffer, const char *text, size_t length, const char *path)
{
	/* By depth: what goes around the hook where a member is missing or null. */
	static const char *const before[] = { "\"hooks\":{\"createRuntime\":[", "\"createRuntime\":[", "" };
	static const char *const after[] = { "]}", "]", "" };
	struct json config;
	struct cut cut;
	bool is_null;

	if (!json_read(text, length, &config) || !find_place(config, &cut))
		return log_error("config.json is not a container's configuration");
	is_null = cut.from != cut.to;
	buffer_add_bytes(buffer, text, (size_t)(cut.from - text));
	if (is_null)
		buffer_add_text(buffer, cut.depth == 1 ? "{" : "[");
	buffer_add_text(buffer, before[cut.depth]);
	buffer_add_text(buffer, "{\"path\":");
	buffer_add_json(buffer, path);
	buffer_add_text(buffer, ",\"args\":[\"vrampack-hook\"]}");
	buffer_add_text(buffer, after[cut.depth]);
	if (is_null)
		buffer_add_text(buffer, cut.depth == 1 ? "}" : "]");
	if (cut.has_more)
		buffer_add_text(buffer, ",");
	buffer_add_bytes(buffer, cut.to, (size_t)(text + length - cut.to));
	return !buffer->is_full || log_error("config.json with a hook is longer than %zu bytes", buffer->size);
}
