/* A program that another launcher has started. With an argument, rank 1 ends in the way that it says, and the others
   compute until the launcher ends them. */

#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	int sum = 0, one = 1;
	CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
	CHECK(sum == size);
	if (argc < 2)
		return finish();
	if (rank != 1)
		sleep(600);
	if (strcmp(argv[1], "abort") == 0)
		MPI_Abort(MPI_COMM_WORLD, 7);
	if (strcmp(argv[1], "kill") == 0)
		raise(SIGKILL);
	if (strcmp(argv[1], "error") == 0)
		MPI_Send(NULL, 0, MPI_INT, size, 0, MPI_COMM_WORLD);
	return 5;
}
