/* Flushes of buffers that do not wait, and fields of statuses. */

#include "check.h"

enum { LARGE = 1 << 20 };

static int is_complete(MPI_Request *r)
{
	int flag;
	MPI_Test(r, &flag, MPI_STATUS_IGNORE);
	return flag;
}

/* Messages to another process may leave before they are received; those to itself stay. */
static void flushes(int to, int from)
{
	char *out = calloc(LARGE, 1), *in = calloc(LARGE, 1), *room = malloc(LARGE + MPI_BSEND_OVERHEAD);
	void *address;
	int n, done;
	MPI_Comm comm;
	MPI_Request of, of_comm, both[2], started;
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Buffer_attach(room, LARGE + MPI_BSEND_OVERHEAD);
	MPI_Comm_attach_buffer(comm, MPI_BUFFER_AUTOMATIC, 0);
	MPI_Bsend(out, LARGE, MPI_CHAR, to, 1, MPI_COMM_WORLD);
	MPI_Bsend(out, LARGE, MPI_CHAR, to, 2, comm);
	CHECK(MPI_Buffer_iflush(&of) == MPI_SUCCESS && MPI_Comm_iflush_buffer(comm, &of_comm) == MPI_SUCCESS);
	if (to == rank)
		CHECK(!is_complete(&of) && !is_complete(&of_comm));
	MPI_Irecv(in, LARGE, MPI_CHAR, from, 1, MPI_COMM_WORLD, &started);
	both[0] = of_comm, both[1] = of;
	MPI_Waitany(2, both, &done, MPI_STATUS_IGNORE);
	CHECK(both[done] == MPI_REQUEST_NULL && (done == 1 || to != rank));
	MPI_Wait(&started, MPI_STATUS_IGNORE);
	MPI_Recv(in, LARGE, MPI_CHAR, from, 2, comm, MPI_STATUS_IGNORE);
	MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
	CHECK(both[0] == MPI_REQUEST_NULL);
	MPI_Buffer_detach(&address, &n);
	CHECK(address == room && n == LARGE + MPI_BSEND_OVERHEAD);
	MPI_Comm_detach_buffer(comm, &address, &n);
	MPI_Buffer_iflush(&of); /* of no buffer */
	CHECK(MPI_Wait(&of, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	MPI_Comm_free(&comm);
	free(out), free(in), free(room);
}

static void statuses(void)
{
	int source, tag, error, cancelled, n, x = 5;
	MPI_Status s;
	MPI_Sendrecv(&x, 1, MPI_INT, rank, 8, &n, 1, MPI_INT, rank, MPI_ANY_TAG, MPI_COMM_WORLD, &s);
	MPI_Status_get_source(&s, &source), MPI_Status_get_tag(&s, &tag);
	CHECK(source == rank && tag == 8);
	CHECK(MPI_Status_set_source(&s, MPI_ANY_SOURCE) == MPI_SUCCESS && MPI_Status_set_tag(&s, MPI_ANY_TAG) == MPI_SUCCESS);
	CHECK(MPI_Status_set_error(&s, MPI_ERR_RANK) == MPI_SUCCESS && MPI_Status_set_cancelled(&s, 1) == MPI_SUCCESS);
	CHECK(s.MPI_SOURCE == MPI_ANY_SOURCE && s.MPI_TAG == MPI_ANY_TAG && s.MPI_ERROR == MPI_ERR_RANK);
	MPI_Status_get_source(&s, &source), MPI_Status_get_tag(&s, &tag), MPI_Status_get_error(&s, &error), MPI_Test_cancelled(&s, &cancelled);
	CHECK(source == MPI_ANY_SOURCE && tag == MPI_ANY_TAG && error == MPI_ERR_RANK && cancelled);
	MPI_Get_count(&s, MPI_INT, &n);
	CHECK(n == 1);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	flushes(rank, rank);
	flushes((rank + 1) % size, (rank + size - 1) % size);
	statuses();
	return finish();
}
