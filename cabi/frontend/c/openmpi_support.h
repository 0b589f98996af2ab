/* Handles and other values of Open MPI's ABI. Handles are addresses of its data objects. Those of what the program makes are odd numbers
   with the core's, which no object has as address. */

#include "support.h"
#include "openmpi_codes.h"

static inline uintptr_t handle_to(const void *handle)
{
	const struct { uint64_t mark, value; } *object = handle;
	const uintptr_t number = (uintptr_t)handle;
	if (number & 1)
		return number >> 1;
	return number >= 4096 && object->mark == OBJECT_MARK ? (uintptr_t)object->value : 0;
}

static inline void *dynamic_from(uintptr_t handle)
{
	return (void *)(handle << 1 | 1);
}

/* MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE, and MPI_IN_PLACE: the core's, too. */
#define IGNORE ((const MPI_Status *)0)
#define IN_PLACE ((const void *)1)

static inline uintptr_t to_buffer(const void *buffer)
{
	return (uintptr_t)buffer;
}

/* MPI_UNWEIGHTED and MPI_WEIGHTS_EMPTY. */
static inline uintptr_t to_weights(const int *weights)
{
	switch ((uintptr_t)weights) {
	case 2: return 10;
	case 3: return 11;
	}
	return (uintptr_t)weights;
}
