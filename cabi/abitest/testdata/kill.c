/* The last rank is killed while others wait for it, and for one another. */

#include "check.h"

#include <signal.h>

int main(int argc, char **argv)
{
	int n = 0;
	begin(&argc, &argv);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == size - 1)
		raise(SIGKILL);
	if (rank == 0)
		MPI_Recv(&n, 1, MPI_INT, size - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (;;)
		MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}
