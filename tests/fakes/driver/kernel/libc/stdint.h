/* What the shared files expect of a C library, as the kernel has it. */
#ifndef LIBC_STDINT_H
#define LIBC_STDINT_H

#include <linux/types.h>

#ifndef UINT32_MAX
#define UINT32_MAX ((uint32_t)~0U)
#endif
#ifndef UINT64_MAX
#define UINT64_MAX ((uint64_t)~0ULL)
#endif

#endif
