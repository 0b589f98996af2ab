/* Ranks exchange messages all the time, until one of them is killed: the others then end with status 5. */

#include "check.h"

/* over ends a rank that sees that another has failed. */
static void over(int code)
{
	int class = MPI_SUCCESS;
	if (code != MPI_SUCCESS)
		MPI_Error_class(code, &class);
	if (class == MPI_SUCCESS)
		return;
	fprintf(stderr, "rank %d: class %d\n", rank, class);
	exit(5);
}

int main(int argc, char **argv)
{
	enum { LARGE = 50000 };
	static int out[LARGE], in[LARGE];
	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	printf("joined\n");
	fflush(stdout);
	for (int round = 0;; round++) {
		int n = round % 4 ? 1 : LARGE, sum = 0, right = (rank + 1) % size, left = (rank + size - 1) % size;
		MPI_Request r[2];
		over(MPI_Sendrecv(out, n, MPI_INT, right, 1, in, n, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		over(MPI_Irecv(in, n, MPI_INT, left, 2, MPI_COMM_WORLD, &r[0]));
		over(MPI_Isend(out, n, MPI_INT, right, 2, MPI_COMM_WORLD, &r[1]));
		over(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
		over(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
		over(MPI_Bcast(in, n, MPI_INT, round % size, MPI_COMM_WORLD));
	}
}
