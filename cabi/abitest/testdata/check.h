/* What the test programs share: a check that ends the job where it fails. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "rank %d: %s:%d: not %s\n", rank, __FILE__, __LINE__, #condition); \
			MPI_Abort(MPI_COMM_WORLD, 3); \
		} \
	} while (0)

/* begin joins the world; finish leaves it, and says so once all have come to it. */
static void __attribute__((unused)) begin(int *argc, char ***argv)
{
	CHECK(MPI_Init(argc, argv) == MPI_SUCCESS);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static int __attribute__((unused)) finish(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("passed by %d\n", size);
	MPI_Finalize();
	return 0;
}
