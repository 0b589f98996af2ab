/* Uses a constant of each sort. */

#include <mpi.h>

extern int use(MPI_Comm comm, MPI_Datatype type, MPI_Offset offset, void *buffer, MPI_Status *status, MPI_Aint size);

int use(MPI_Comm comm, MPI_Datatype type, MPI_Offset offset, void *buffer, MPI_Status *status, MPI_Aint size)
{
	return comm == MPI_COMM_NULL || type == MPI_LONG_LONG_INT || offset == MPI_DISPLACEMENT_CURRENT || buffer == MPI_IN_PLACE ||
	       status == MPI_STATUS_IGNORE || size == MPI_ANY_TAG;
}
