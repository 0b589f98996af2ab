/* Sends to the next rank as often as its own number, and once more. */

#include "check.h"

int main(int argc, char **argv)
{
	int in = 0;
	begin(&argc, &argv);
	for (int i = 0; i <= rank; i++)
		MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
	for (int i = 0; i <= (rank + size - 1) % size; i++)
		MPI_Recv(&in, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Finalize();
	return 0;
}
