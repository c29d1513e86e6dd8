/*
 * Objects in control files. The driver's own client has a duplicate of each until that file is closed, and any process with the file
 * makes another of it: os.c and rmobjexportimport.c, the same from 515.43.04 to 595.45.04. And dma-bufs, nv-dmabuf.c.
 */
#include "call.h"

enum { EXPORT_TYPE_RM = 1, FLAG_EMPTY_FILE = 1 };

static struct memory **slot_of(const struct rm_file *file, uint32_t index)
{
	return index < file->exported_count ? &file->exported[index] : NULL;
}

static bool make_room(const struct call *call, struct rm_file *file, uint32_t count)
{
	file->exported = call->rm->host->take(count * sizeof(*file->exported));
	if (!file->exported)
		return false;
	file->exported_count = count;
	return true;
}

static void put_into(struct rm *rm, struct memory **slot, struct memory *memory)
{
	struct memory *old = *slot;

	if (memory)
		memory->references++;
	*slot = memory;
	if (old)
		memory_release(rm, old);
}

void export_release(struct rm *rm, struct rm_file *file)
{
	for (uint32_t i = 0; i < file->exported_count; i++)
		put_into(rm, &file->exported[i], NULL);
	rm->host->give(file->exported);
	file->exported = NULL;
	file->exported_count = 0;
}

/* All of them or none: the file's old ones stay when one is not there. */
static uint32_t export_range(const struct call *call, const struct object *client, struct rm_file *file,
			     const unsigned char *handles, uint32_t count, uint32_t index)
{
	const struct object *object;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t handle = get32(handles, i * 4u);

		object = object_find(call->rm, client->client, handle);
		if (handle && (!object || object->class_number != CLASS_VIDEO_MEMORY))
			return RM_BAD_HANDLE;
	}
	for (uint32_t i = 0; i < count; i++) {
		object = object_find(call->rm, client->client, get32(handles, i * 4u));
		put_into(call->rm, slot_of(file, index + i), object ? object->memory : NULL);
	}
	return RM_OK;
}

static uint32_t export_into(const struct call *call, const struct object *client, struct rm_file *file,
			    const unsigned char *at)
{
	const struct object *device = object_find(call->rm, client->client, get32(at, EXPORTS_DEVICE));
	bool is_new = !file->exported_count;
	uint32_t count = get16(at, EXPORTS_COUNT), index = get16(at, EXPORTS_INDEX), status;

	if (is_new && (!device || device->class_number != CLASS_DEVICE))
		return RM_BAD_PARAMETER;
	if (is_new && (!get16(at, EXPORTS_MOST) || !make_room(call, file, get16(at, EXPORTS_MOST))))
		return RM_BAD_PARAMETER;
	if (count > EXPORTS_LARGEST)
		status = RM_BAD_PARAMETER;
	else if (count + index > file->exported_count)
		status = RM_OUT_OF_RANGE;
	else
		status = export_range(call, client, file, at + EXPORTS_OBJECTS, count, index);
	if (status != RM_OK && is_new)
		export_release(call->rm, file);
	return status;
}

uint32_t export_many(const struct call *call, const struct object *client, unsigned char *at)
{
	const struct rm_host *host = call->rm->host;
	struct rm_file *file;
	uint32_t status;
	void *kept;

	file = host->take_control ? host->take_control(call->caller, (int32_t)get32(at, EXPORTS_FILE), &kept) : NULL;
	if (!file)
		return RM_BAD_PARAMETER;
	status = export_into(call, client, file, at);
	host->give_control(kept);
	return status;
}

/* Into a file that nothing has been exported to. */
uint32_t export_one(const struct call *call, const struct object *client, unsigned char *at)
{
	const struct rm_host *host = call->rm->host;
	const struct object *object;
	uint32_t status = RM_OK;
	struct rm_file *file;
	void *kept;

	if (get32(at, EXPORT_TYPE) != EXPORT_TYPE_RM || get32(at, EXPORT_FLAGS) & FLAG_EMPTY_FILE)
		return RM_BAD_PARAMETER;
	object = object_find(call->rm, client->client, get32(at, EXPORT_OBJECT));
	if (!object || object->class_number != CLASS_VIDEO_MEMORY)
		return RM_BAD_HANDLE;
	file = host->take_control ? host->take_control(call->caller, (int32_t)get32(at, EXPORT_FILE), &kept) : NULL;
	if (!file)
		return RM_BAD_PARAMETER;
	if (file->exported_count)
		status = RM_IN_USE;
	else if (make_room(call, file, 1))
		put_into(call->rm, slot_of(file, 0), object->memory);
	else
		status = RM_NO_ROOM_FOR_STATE;
	host->give_control(kept);
	return status;
}

static uint32_t import_into(const struct call *call, const struct object *client, uint32_t parent, unsigned char *handle,
			    struct memory *memory)
{
	struct object *above = object_find(call->rm, client->client, parent), *object;
	uint32_t wanted = get32(handle, 0), status;

	if (!above)
		return RM_BAD_HANDLE;
	if (above->class_number != CLASS_DEVICE && above->class_number != CLASS_SUBDEVICE)
		return RM_BAD_PARENT;
	status = object_add(call->rm, above, &wanted, CLASS_VIDEO_MEMORY, &object);
	if (status != RM_OK)
		return status;
	memory->references++;
	memory_hold(memory, object);
	put32(handle, 0, wanted);
	return RM_OK;
}

uint32_t import_one(const struct call *call, const struct object *client, unsigned char *at)
{
	const struct rm_host *host = call->rm->host;
	uint32_t status = RM_BAD_PARAMETER;
	struct memory **slot;
	struct rm_file *file;
	void *kept;

	if (get32(at, IMPORT_TYPE) != EXPORT_TYPE_RM)
		return RM_BAD_PARAMETER;
	file = host->take_control ? host->take_control(call->caller, (int32_t)get32(at, IMPORT_FILE), &kept) : NULL;
	if (!file)
		return RM_BAD_PARAMETER;
	slot = slot_of(file, 0);
	if (slot && *slot)
		status = import_into(call, client, get32(at, IMPORT_PARENT), at + IMPORT_OBJECT, *slot);
	host->give_control(kept);
	return status;
}

/* What was made before one failed goes again. */
static uint32_t import_range(const struct call *call, const struct object *client, const struct rm_file *file,
			     unsigned char *at)
{
	uint32_t count = get16(at, IMPORTS_COUNT), index = get16(at, IMPORTS_INDEX), status = RM_OK, done;

	if (!file->exported_count || count > IMPORTS_LARGEST)
		return RM_BAD_PARAMETER;
	if (count + index > file->exported_count)
		return RM_OUT_OF_RANGE;
	for (done = 0; done < count && status == RM_OK; done++) {
		struct memory *memory = *slot_of(file, index + done);

		if (memory)
			status = import_into(call, client, get32(at, IMPORTS_PARENT), at + IMPORTS_OBJECTS + done * 4u, memory);
	}
	for (uint32_t i = 0; status != RM_OK && i + 1 < done; i++) {
		struct object *made = object_find(call->rm, client->client, get32(at, IMPORTS_OBJECTS + i * 4u));

		if (made)
			object_free(call->rm, made);
	}
	return status;
}

uint32_t import_many(const struct call *call, const struct object *client, unsigned char *at)
{
	const struct rm_host *host = call->rm->host;
	struct rm_file *file;
	uint32_t status;
	void *kept;

	file = host->take_control ? host->take_control(call->caller, (int32_t)get32(at, IMPORTS_FILE), &kept) : NULL;
	if (!file)
		return RM_BAD_PARAMETER;
	status = import_range(call, client, file, at);
	host->give_control(kept);
	return status;
}

/* D34: here the card's file stands for the dma-buf, which is a descriptor of its own. */
uint32_t nv_dma_buf_export(void *card, void *parameters)
{
	const struct call *call = card;
	const unsigned char *at = parameters;
	struct rm_file *file = call->file;
	struct object *object = object_find(call->rm, get32(at, DMABUF_CLIENT), get32(at, call->rm->layout->dmabuf_handles));

	if (!object || object->class_number != CLASS_VIDEO_MEMORY)
		return RM_BAD_HANDLE;
	if (!file->exported_count && !make_room(call, file, 1))
		return RM_NO_ROOM_FOR_STATE;
	put_into(call->rm, slot_of(file, 0), object->memory);
	return RM_OK;
}
