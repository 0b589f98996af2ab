/* A program that calls what there is not, of MPICH's own. */

#include <mpi.h>
#include <stdio.h>

int main(void)
{
	MPI_Init(NULL, NULL);
	printf("before\n");
	MPIX_Comm_revoke(MPI_COMM_WORLD);
	printf("after\n");
	return 0;
}
