#include "core.h"

bool core_knows_version(const char *driver_version)
{
	return driver_version[0] == '5';
}

bool core_begin(struct core *core, const struct core_form *form, void *context, const char *driver_version)
{
	core->form = form;
	core->context = context;
	return core_knows_version(driver_version);
}

void core_end(struct core *core)
{
	(void)core;
}

enum core_verdict core_before(struct core *core, struct core_file *file, struct core_call *call, uint32_t request,
			      uint64_t argument)
{
	(void)core, (void)file, (void)request;
	call->at = argument;
	return CORE_FORWARD;
}

void core_after(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	(void)core, (void)file, (void)call, (void)result;
}

void core_release(struct core *core, struct core_file *file)
{
	(void)core;
	file->first = 0;
}
