/* Single system calls for the host. */
#ifndef GUEST_CALL_H
#define GUEST_CALL_H

#include <stdio.h>

#define CALL "/bin/call"

/* Makes the call that these words name (see call.c); NULL ends them. Returns 0 or the errno. */
int call(char **words, FILE *input, FILE *output);

#endif
