/* What NVIDIA's own libraries answer first: nvmlInit and cuInit, loaded as programs load them. */
#include <dlfcn.h>
#include <stdio.h>

typedef int one_number(unsigned);
typedef int into_number(unsigned *);
typedef int into_text(char *, unsigned);

static void *find(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_NOW), *found = handle ? dlsym(handle, name) : NULL;

	if (!found)
		printf("%s: %s\n", name, dlerror());
	return found;
}

static void call(const char *library, const char *name)
{
	one_number *function = (one_number *)find(library, name);

	if (function)
		printf("%s: %d\n", name, function(0));
	fflush(stdout);
}

static void call_for_number(const char *library, const char *name)
{
	into_number *function = (into_number *)find(library, name);
	unsigned number = 0;

	if (function) {
		int result = function(&number);

		printf("%s: %d, %u\n", name, result, number);
	}
}

static void call_for_text(const char *library, const char *name)
{
	into_text *function = (into_text *)find(library, name);
	char text[96] = "";

	if (function) {
		int result = function(text, sizeof(text));

		printf("%s: %d, %s\n", name, result, text);
	}
}

int main(void)
{
	const char *nvml = "libnvidia-ml.so.1", *cuda = "libcuda.so.1";

	call(nvml, "nvmlInit_v2");
	call_for_number(nvml, "nvmlDeviceGetCount_v2");
	call_for_text(nvml, "nvmlSystemGetDriverVersion");
	call(cuda, "cuInit");
	call_for_number(cuda, "cuDriverGetVersion");
	return 0;
}
