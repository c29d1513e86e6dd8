#include "layout.h"

#include <string.h>

const struct layout *layout_of(unsigned branch)
{
#define ROW(...) { __VA_ARGS__ },
	static const struct layout layouts[] = { LAYOUTS(ROW) };

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (layouts[i].branch == branch)
			return &layouts[i];
	return NULL;
}

const struct heap_layout *heap_layout_of(uint32_t function, unsigned branch)
{
	static const struct heap_layout layouts[] = { HEAP_LAYOUTS(ROW) };
#undef ROW

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (layouts[i].function == function && branch <= layouts[i].last_branch)
			return &layouts[i];
	return NULL;
}

uint16_t get16(const unsigned char *at, size_t offset)
{
	uint16_t value;

	memcpy(&value, at + offset, sizeof(value));
	return value;
}

uint32_t get32(const unsigned char *at, size_t offset)
{
	uint32_t value;

	memcpy(&value, at + offset, sizeof(value));
	return value;
}

uint64_t get64(const unsigned char *at, size_t offset)
{
	uint64_t value;

	memcpy(&value, at + offset, sizeof(value));
	return value;
}

void put16(unsigned char *at, size_t offset, uint16_t value)
{
	memcpy(at + offset, &value, sizeof(value));
}

void put32(unsigned char *at, size_t offset, uint32_t value)
{
	memcpy(at + offset, &value, sizeof(value));
}

void put64(unsigned char *at, size_t offset, uint64_t value)
{
	memcpy(at + offset, &value, sizeof(value));
}
