/* How Go calls C. */

#include <stdint.h>

void isthmus_exit(int status);
uintptr_t isthmus_allocate(uintptr_t size, uintptr_t alignment);
void isthmus_free(uintptr_t address);
void isthmus_flush(void);
void isthmus_call_user(uintptr_t caller, uintptr_t function, uintptr_t in, uintptr_t inout, int64_t n, uintptr_t datatype);
int32_t isthmus_call_grequest(uintptr_t caller, uintptr_t function, uintptr_t extra, uintptr_t argument);
void isthmus_call_errhandler(uintptr_t caller, uintptr_t function, uintptr_t handle, int32_t code);

/* What the function that copies an attribute says. */
struct isthmus_copied {
	int32_t code, keep;
	uintptr_t value;
};

struct isthmus_copied isthmus_call_copy_attr(uintptr_t caller, uintptr_t function, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t value);
int32_t isthmus_call_delete_attr(uintptr_t caller, uintptr_t function, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra);

/* Likewise by a proxy of a library for another language. */
struct isthmus_copied isthmus_call_copy_proxy(uintptr_t caller, uintptr_t proxy, uintptr_t function, int32_t kind, uintptr_t object, int32_t keyval, uintptr_t extra, int32_t integer, uintptr_t value);
int32_t isthmus_call_delete_proxy(uintptr_t caller, uintptr_t proxy, uintptr_t function, int32_t kind, uintptr_t object, int32_t keyval, int32_t integer, uintptr_t value, uintptr_t extra);
