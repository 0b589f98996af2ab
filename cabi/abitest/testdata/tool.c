/* A tool that counts what a program sends, which is loaded before the library (MPI-5.0, section 15.2). */

#include <mpi.h>
#include <stdio.h>

static int sends;

int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)
{
	sends++;
	return PMPI_Send(buf, count, datatype, dest, tag, comm);
}

int MPI_Finalize(void)
{
	fprintf(stderr, "%d sends\n", sends);
	return PMPI_Finalize();
}
