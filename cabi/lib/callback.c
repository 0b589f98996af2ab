//go:build cabi

#include "callback.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The program's output is written before it ends; its exit handlers are not called, as they may
   call MPI. */
void isthmus_exit(int status)
{
	_exit(status);
}

uintptr_t isthmus_allocate(uintptr_t size, uintptr_t alignment)
{
	void *memory;
	return posix_memalign(&memory, alignment, size) == 0 ? (uintptr_t)memory : 0;
}

void isthmus_free(uintptr_t address)
{
	free((void *)address);
}

void isthmus_flush(void)
{
	fflush(NULL);
}

void isthmus_call_user(uintptr_t caller, uintptr_t function, uintptr_t in, uintptr_t inout, int64_t n, uintptr_t datatype)
{
	((void (*)(uintptr_t, uintptr_t, uintptr_t, int64_t, uintptr_t))caller)(function, in, inout, n, datatype);
}

int32_t isthmus_call_grequest(uintptr_t caller, uintptr_t function, uintptr_t extra, uintptr_t argument)
{
	return ((int32_t (*)(uintptr_t, uintptr_t, uintptr_t))caller)(function, extra, argument);
}

void isthmus_call_errhandler(uintptr_t caller, uintptr_t function, uintptr_t handle, int32_t code)
{
	((void (*)(uintptr_t, uintptr_t, int32_t))caller)(function, handle, code);
}

struct isthmus_copied isthmus_call_copy_attr(uintptr_t caller, uintptr_t function, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t value)
{
	struct isthmus_copied out = {0, 0, 0};
	int keep = 0;
	out.code = ((int32_t (*)(uintptr_t, uintptr_t, int32_t, uintptr_t, uintptr_t, uintptr_t *, int *))caller)(function, object, keyval, extra, value, &out.value, &keep);
	out.keep = keep;
	return out;
}

int32_t isthmus_call_delete_attr(uintptr_t caller, uintptr_t function, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra)
{
	return ((int32_t (*)(uintptr_t, uintptr_t, int32_t, uintptr_t, uintptr_t))caller)(function, object, keyval, value, extra);
}

struct isthmus_copied isthmus_call_copy_proxy(uintptr_t caller, uintptr_t proxy, uintptr_t function, int32_t kind, uintptr_t object, int32_t keyval, uintptr_t extra, int32_t integer, uintptr_t value)
{
	struct isthmus_copied out = {0, 0, 0};
	int keep = 0;
	out.code = ((int32_t (*)(uintptr_t, uintptr_t, int32_t, uintptr_t, int32_t, uintptr_t, int32_t, uintptr_t, uintptr_t *, int *))caller)(
		proxy, function, kind, object, keyval, extra, integer, value, &out.value, &keep);
	out.keep = keep;
	return out;
}

int32_t isthmus_call_delete_proxy(uintptr_t caller, uintptr_t proxy, uintptr_t function, int32_t kind, uintptr_t object, int32_t keyval, int32_t integer, uintptr_t value, uintptr_t extra)
{
	return ((int32_t (*)(uintptr_t, uintptr_t, int32_t, uintptr_t, int32_t, int32_t, uintptr_t, uintptr_t))caller)(
		proxy, function, kind, object, keyval, integer, value, extra);
}
