/*
 * around WAY MIB: the ways around a library in front of libc's functions.
 *      plain     a library of its own that calls ioctl, as CUDA's does
 *      deepbind  the same library, told to look at its own dependencies first
 *      dlsym     libc's own ioctl, asked of libc's handle
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
	int is_deep = count == 4 && strcmp(words[1], "deepbind") == 0;
	void *library = count == 4 ? dlopen(words[3], RTLD_NOW | (is_deep ? RTLD_DEEPBIND : 0)) : NULL;
	int (*take)(int is_dlsym, unsigned long mib) = library ? (int (*)(int, unsigned long))dlsym(library, "around_take") : NULL;

	if (!take) {
		fprintf(stderr, "usage: around plain|deepbind|dlsym MIB LIBRARY: %s\n", dlerror());
		return 2;
	}
	puts(take(strcmp(words[1], "dlsym") == 0, strtoul(words[2], NULL, 10)) ? "taken" : "refused");
	return 0;
}
