/* Reductions of types that Go has no arithmetic for. */

#include <stdint.h>

void isthmus_wide(int32_t kind, uintptr_t op, uintptr_t inout, uintptr_t in, int64_t n);
