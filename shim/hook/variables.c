#include "variables.h"

#include <string.h>

#include "log.h"

static bool store(struct json *kept, struct json entry, const char *name)
{
	int length = (int)strlen(name) - 1;

	if (kept->at)
		return log_error("%.*s is set twice in the environment: set it once", length, name);
	if (entry.end - entry.at > VARIABLE_SIZE)
		return log_error("%.*s is longer than %d bytes", length, name, VARIABLE_SIZE);
	*kept = entry;
	return true;
}

bool variables_read(struct variables *variables, struct json env)
{
#define ROW(name) name,
	static const char *const names[] = { VARIABLES(ROW) };
#undef ROW
	struct json_walk walk;
	struct json name, entry;

	if (!json_walk(env, &walk))
		return true;
	while (json_next(&walk, &name, &entry))
		for (size_t i = 0; i < VARIABLES_COUNT; i++)
			if (json_continues(entry, names[i]) && !store(&variables->entries[i], entry, names[i]))
				return false;
	return true;
}
