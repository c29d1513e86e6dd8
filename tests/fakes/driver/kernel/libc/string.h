#include <linux/string.h>
