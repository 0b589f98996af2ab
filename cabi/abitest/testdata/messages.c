/* Point-to-point messages and requests. */

#include "check.h"

static void ring(void)
{
	int right = (rank + 1) % size, left = (rank + size - 1) % size, n = 0, in = -1;
	MPI_Status status;
	CHECK(MPI_Sendrecv(&rank, 1, MPI_INT, right, 5, &in, 1, MPI_INT, left, 5, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
	CHECK(in == left && status.MPI_SOURCE == left && status.MPI_TAG == 5);
	MPI_Get_count(&status, MPI_INT, &n);
	CHECK(n == 1);
	MPI_Get_count(&status, MPI_DOUBLE, &n);
	CHECK(n == MPI_UNDEFINED);
	CHECK(MPI_Sendrecv_replace(&in, 1, MPI_INT, right, 6, left, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	CHECK(in == (rank + 2 * size - 2) % size);
}

static void wildcards(void)
{
	if (rank == 0) {
		long sum = 0;
		for (int i = 1; i < size; i++) {
			double in[4] = {0};
			int flag = 0, n;
			MPI_Status probed, status;
			MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &probed);
			MPI_Iprobe(probed.MPI_SOURCE, probed.MPI_TAG, MPI_COMM_WORLD, &flag, &status);
			CHECK(flag && status.MPI_SOURCE == probed.MPI_SOURCE);
			MPI_Recv(in, 4, MPI_DOUBLE, MPI_ANY_SOURCE, probed.MPI_TAG, MPI_COMM_WORLD, &status);
			MPI_Get_count(&status, MPI_DOUBLE, &n);
			CHECK(status.MPI_TAG == 100 + status.MPI_SOURCE && n == 3 && in[2] == status.MPI_SOURCE);
			sum += status.MPI_SOURCE;
		}
		CHECK(sum == (long)size * (size - 1) / 2);
	} else {
		double out[3] = {1, 2, rank};
		MPI_Ssend(out, 3, MPI_DOUBLE, 0, 100 + rank, MPI_COMM_WORLD);
	}
}

/* Large messages to all, completed in each way. */
static void requests(void)
{
	enum { N = 30000 };
	int *in = malloc(sizeof(int) * N * (size_t)size), *out = malloc(sizeof(int) * N);
	MPI_Request *r = malloc(sizeof *r * 2 * (size_t)size);
	MPI_Status *s = malloc(sizeof *s * 2 * (size_t)size);
	for (int i = 0; i < N; i++)
		out[i] = rank * N + i;
	for (int p = 0; p < size; p++) {
		MPI_Irecv(in + p * N, N, MPI_INT, p, 7, MPI_COMM_WORLD, &r[p]);
		MPI_Isend(out, N, MPI_INT, p, 7, MPI_COMM_WORLD, &r[size + p]);
	}
	CHECK(MPI_Waitall(2 * size, r, s) == MPI_SUCCESS);
	for (int p = 0; p < size; p++) {
		CHECK(r[p] == MPI_REQUEST_NULL && s[p].MPI_SOURCE == p && s[p].MPI_TAG == 7);
		CHECK(in[p * N] == p * N && in[p * N + N - 1] == p * N + N - 1);
	}

	for (int p = 0; p < size; p++)
		MPI_Irecv(in + p, 1, MPI_INT, p, 8, MPI_COMM_WORLD, &r[p]);
	for (int p = 0; p < size; p++)
		MPI_Send(&rank, 1, MPI_INT, p, 8, MPI_COMM_WORLD);
	int left = size, index, count, flag;
	MPI_Waitany(size, r, &index, s);
	CHECK(index >= 0 && index < size && s[0].MPI_SOURCE == index);
	left--;
	int *indices = malloc(sizeof(int) * (size_t)size);
	while (left > 0) {
		MPI_Waitsome(size, r, &count, indices, s);
		CHECK(count > 0);
		for (int i = 0; i < count; i++)
			CHECK(s[i].MPI_SOURCE == indices[i]);
		left -= count;
	}
	MPI_Waitsome(size, r, &count, indices, MPI_STATUSES_IGNORE);
	CHECK(count == MPI_UNDEFINED);
	MPI_Waitany(size, r, &index, MPI_STATUS_IGNORE);
	CHECK(index == MPI_UNDEFINED);
	MPI_Testall(size, r, &flag, MPI_STATUSES_IGNORE);
	CHECK(flag);
	for (int p = 0; p < size; p++)
		CHECK(in[p] == p);
	free(in), free(out), free(r), free(s), free(indices);
}

static void persistent(void)
{
	int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1, out = 0;
	MPI_Request r[2];
	MPI_Send_init(&out, 1, MPI_INT, right, 9, MPI_COMM_WORLD, &r[0]);
	MPI_Recv_init(&in, 1, MPI_INT, left, 9, MPI_COMM_WORLD, &r[1]);
	for (int i = 0; i < 5; i++) {
		int flag = 0;
		MPI_Status status;
		out = 10 * rank + i;
		MPI_Startall(2, r);
		MPI_Wait(&r[0], MPI_STATUS_IGNORE);
		while (!flag)
			MPI_Test(&r[1], &flag, &status);
		CHECK(in == 10 * left + i && status.MPI_SOURCE == left && r[1] != MPI_REQUEST_NULL);
	}
	MPI_Request_free(&r[0]);
	MPI_Request_free(&r[1]);
	CHECK(r[0] == MPI_REQUEST_NULL);
}

/* Sends and receives at once, nonblocking, and a receive whose request is freed. */
static void exchange(void)
{
	static int never;
	int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1, one = rank, index, pieces[4] = {0};
	MPI_Request r[2];
	MPI_Status s[2];
#if MPI_VERSION >= 4
	MPI_Isendrecv(&rank, 1, MPI_INT, right, 11, &in, 1, MPI_INT, left, 11, MPI_COMM_WORLD, &r[0]);
	MPI_Isendrecv_replace(&one, 1, MPI_INT, left, 12, right, 12, MPI_COMM_WORLD, &r[1]);
	CHECK(MPI_Waitall(2, r, s) == MPI_SUCCESS);
	CHECK(in == left && s[0].MPI_SOURCE == left && one == right && s[1].MPI_TAG == 12);
	MPI_Isendrecv(&rank, 1, MPI_INT, right, 13, &in, 1, MPI_INT, MPI_PROC_NULL, 13, MPI_COMM_WORLD, &r[0]);
	MPI_Irecv(&in, 1, MPI_INT, left, 13, MPI_COMM_WORLD, &r[1]);
	CHECK(MPI_Waitany(2, r, &index, s) == MPI_SUCCESS && r[index] == MPI_REQUEST_NULL && r[1 - index] != MPI_REQUEST_NULL);
	MPI_Wait(&r[1 - index], MPI_STATUS_IGNORE);
#endif
	MPI_Datatype ends;
	MPI_Type_vector(2, 1, 3, MPI_INT, &ends);
	MPI_Type_commit(&ends);
	MPI_Irecv(pieces, 1, ends, left, 14, MPI_COMM_WORLD, &r[0]);
	CHECK(MPI_Request_free(&r[0]) == MPI_SUCCESS && r[0] == MPI_REQUEST_NULL);
	int out[2] = {rank + 1, rank + 2};
	MPI_Send(out, 2, MPI_INT, right, 14, MPI_COMM_WORLD);
	while (((volatile int *)pieces)[3] != left + 2)
		MPI_Iprobe(MPI_ANY_SOURCE, 15, MPI_COMM_WORLD, &index, MPI_STATUS_IGNORE);
	CHECK(pieces[0] == left + 1 && pieces[1] == 0 && pieces[2] == 0);
	MPI_Type_free(&ends);
	MPI_Irecv(&never, 1, MPI_INT, left, 15, MPI_COMM_WORLD, &r[0]); /* MPI_Finalize does not wait for it */
	MPI_Request_free(&r[0]);
}

/* Sends from an attached buffer, which has room for one message to each. */
static void buffered(void)
{
	int bytes, error, class, in, n;
	MPI_Comm comm;
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	error = MPI_Bsend(&rank, 1, MPI_INT, rank, 21, comm);
	MPI_Error_class(error, &class);
	CHECK(class == MPI_ERR_BUFFER);
	MPI_Pack_size(1, MPI_INT, comm, &bytes);
	bytes = (bytes + MPI_BSEND_OVERHEAD) * size;
	char *memory = malloc((size_t)bytes), *given = NULL;
	CHECK(MPI_Buffer_attach(memory, bytes) == MPI_SUCCESS);
	for (int p = 0; p < size; p++)
		CHECK(MPI_Bsend(&rank, 1, MPI_INT, p, 21, comm) == MPI_SUCCESS);
	for (int p = 0; p < size; p++) {
		MPI_Recv(&in, 1, MPI_INT, p, 21, comm, MPI_STATUS_IGNORE);
		CHECK(in == p);
	}
	CHECK(MPI_Buffer_detach(&given, &n) == MPI_SUCCESS && given == memory && n == bytes);
	free(memory);
	MPI_Comm_free(&comm);
}

static void nobody(void)
{
	int in = 4, flag = 0;
	MPI_Status status;
	MPI_Request r = MPI_REQUEST_NULL;
	MPI_Recv(&in, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status);
	CHECK(in == 4 && status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
	MPI_Wait(&r, &status);
	CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
	MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
	CHECK(!flag);
}

/* An error with MPI_ERRORS_RETURN has its class. */
static void mistakes(void)
{
	int error, class, length, in[2];
	char text[MPI_MAX_ERROR_STRING];
	MPI_Comm comm;
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	error = MPI_Send(in, 1, MPI_INT, size, 0, comm);
	MPI_Error_class(error, &class);
	CHECK(class == MPI_ERR_RANK);
	error = MPI_Send(in, -1, MPI_INT, 0, 0, comm);
	MPI_Error_class(error, &class);
	CHECK(class == MPI_ERR_COUNT);
	MPI_Sendrecv(in, 2, MPI_INT, rank, 1, in, 2, MPI_INT, rank, 1, comm, MPI_STATUS_IGNORE);
	MPI_Request r;
	MPI_Irecv(in, 1, MPI_INT, rank, 2, comm, &r);
	MPI_Send(in, 2, MPI_INT, rank, 2, comm);
	error = MPI_Wait(&r, MPI_STATUS_IGNORE);
	MPI_Error_class(error, &class);
	CHECK(class == MPI_ERR_TRUNCATE);
	MPI_Error_string(error, text, &length);
	CHECK(length == (int)strlen(text) && length > 0);
	MPI_Comm_free(&comm);
	CHECK(comm == MPI_COMM_NULL);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	ring();
	wildcards();
	MPI_Barrier(MPI_COMM_WORLD);
	requests();
	persistent();
	exchange();
	buffered();
	nobody();
	mistakes();
	return finish();
}
