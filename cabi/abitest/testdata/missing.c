/* A program that calls what there is not. */

#include <mpi.h>
#include <stdio.h>

int main(void)
{
	void *base;
	MPI_Win win;
	MPI_Init(NULL, NULL);
	printf("before\n");
	MPI_Win_allocate(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	printf("after\n");
	return 0;
}
