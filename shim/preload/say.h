/* The library's few words on standard error: each at most once in a process, and none while all is well. */
#ifndef SAY_H
#define SAY_H

enum say_line { SAY_NO_AGENT, SAY_OTHER_PROTOCOL, SAY_DRIVER, SAY_KERNEL, SAY_FILES };

void say_once(enum say_line line, const char *text);

#endif
