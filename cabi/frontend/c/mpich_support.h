/* Handles of MPICH's ABI. The top bits say what a handle is of: 0x44000000 is a communicator that
   always exists, 0x84000000 and above are communicators that were made. The latter have the core's
   number in the other bits. */

#include "support.h"

enum {
	MPICH_COMM = 0x84000000 >> 24,
	MPICH_GROUP = 0x88000000 >> 24,
	MPICH_DATATYPE = 0x8c000000 >> 24,
	MPICH_ERRHANDLER = 0x94000000 >> 24,
	MPICH_OP = 0x98000000 >> 24,
	MPICH_INFO = 0x9c000000 >> 24,
	MPICH_WIN = 0xa0000000 >> 24,
	MPICH_REQUEST = 0xac000000 >> 24,
	MPICH_MESSAGE = MPICH_REQUEST,
	MPICH_SESSION = 0xb8000000 >> 24
};

static inline uintptr_t dynamic_to(int handle)
{
	return (uintptr_t)(handle & 0x03ffffff);
}

static inline int dynamic_from(uintptr_t handle, unsigned kind)
{
	return (int)(kind << 24 | (unsigned)handle);
}

/* Classes and codes that a program adds lie above MPI_ERR_LASTCODE, which differs. */
enum { MPICH_LASTCODE = 0x3fffffff, LASTCODE = 16383 };

static inline int32_t added_to(int code)
{
	return code > MPICH_LASTCODE ? code - MPICH_LASTCODE + LASTCODE : code;
}

static inline int added_from(int32_t code)
{
	return code > LASTCODE ? code - LASTCODE + MPICH_LASTCODE : code;
}
