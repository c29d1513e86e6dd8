// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
#include "layouts.h"

#define ROW(number, ...) { LAYOUTS_SHARED, .branch = number, __VA_ARGS__ },
static const struct core_layout layouts[] = { LAYOUTS(ROW) };
#undef ROW

/* "580.95.05" is of branch 580; anything that does not start with three digits and a dot is of none. */
static uint32_t branch_of(const char *version)
{
	uint32_t branch = 0;

	for (int i = 0; i < 3; i++) {
		if (version[i] < '0' || version[i] > '9')
			return 0;
		branch = branch * 10 + (uint32_t)(version[i] - '0');
	}
	return version[3] == '.' ? branch : 0;
}

const struct core_layout *layouts_find(const char *driver_version)
{
	uint32_t branch = branch_of(driver_version);

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (layouts[i].branch == branch)
			return &layouts[i];
	return NULL;
}
