/* The library's few words on standard error: each at most once in a process, and none while all is well. */
#ifndef LOG_H
#define LOG_H

enum log_line { LOG_NO_AGENT, LOG_OTHER_PROTOCOL, LOG_DRIVER, LOG_KERNEL, LOG_FILES };

void log_once(enum log_line line, const char *text);

#endif
