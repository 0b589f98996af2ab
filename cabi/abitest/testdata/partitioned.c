/* Partitioned transfers. */

#include "check.h"
#include <pthread.h>

enum { PARTS = 8, EACH = 1000, THREADS = 4 };

static int class_of(int code)
{
	int class;
	MPI_Error_class(code, &class);
	return class;
}

static void await(MPI_Request r, int partition)
{
	int flag = 0;
	while (!flag)
		CHECK(MPI_Parrived(r, partition, &flag) == MPI_SUCCESS);
}

/* Around the ring, the receivers with other partitions than the senders; each is there when it has arrived. */
static void ring(void)
{
	int *out = calloc(PARTS * EACH, sizeof *out), *in = calloc(PARTS * EACH, sizeof *in);
	int to = (rank + 1) % size, from = (rank + size - 1) % size, list[] = {7, 0, 5, 2}, flag, n;
	MPI_Request r[2], kept[2];
	MPI_Status s[2];
	CHECK(MPI_Psend_init(out, PARTS, EACH, MPI_INT, to, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]) == MPI_SUCCESS);
	CHECK(MPI_Precv_init(in, PARTS / 2, 2 * EACH, MPI_INT, from, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]) == MPI_SUCCESS);
	kept[0] = r[0], kept[1] = r[1];
	for (int round = 1; round <= 3; round++) {
		for (int i = 0; i < PARTS * EACH; i++)
			out[i] = round * (100 * rank + i), in[i] = -1;
		MPI_Startall(2, r);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Pready(3, r[0]);
		MPI_Pready_list(4, list, r[0]);
		await(r[1], 1);
		for (int i = 2 * EACH; i < 4 * EACH; i++)
			CHECK(in[i] == round * (100 * from + i));
		MPI_Parrived(r[1], 2, &flag);
		CHECK(!flag); /* partition 4 is not released before the barrier */
		MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
		CHECK(!flag);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Pready(1, r[0]), MPI_Pready(4, r[0]), MPI_Pready_range(6, 6, r[0]);
		if (round == 1)
			MPI_Waitall(2, r, s);
		else if (round == 2)
			for (flag = 0; !flag;)
				MPI_Testall(2, r, &flag, s);
		else
			MPI_Wait(&r[1], &s[1]), MPI_Wait(&r[0], &s[0]);
		MPI_Get_count(&s[1], MPI_INT, &n);
		CHECK(s[1].MPI_SOURCE == from && s[1].MPI_TAG == 4 && n == PARTS * EACH && r[0] == kept[0] && r[1] == kept[1]);
		for (int i = 0; i < PARTS * EACH; i++)
			CHECK(in[i] == round * (100 * from + i));
	}
	MPI_Request_free(&r[0]), MPI_Request_free(&r[1]);
	CHECK(r[0] == MPI_REQUEST_NULL && r[1] == MPI_REQUEST_NULL);
	free(out), free(in);
}

static MPI_Request shared;

static void *release(void *argument)
{
	int first = *(int *)argument * PARTS / THREADS;
	CHECK(MPI_Pready_range(first, first + PARTS / THREADS - 1, shared) == MPI_SUCCESS);
	return NULL;
}

/* Threads release partitions of a type with gaps, and the receive waits among messages. */
static void threads(void)
{
	int out[2 * PARTS], in[PARTS], x = -1, index, ids[THREADS], left = 2;
	MPI_Datatype every_other;
	MPI_Request r[3];
	pthread_t thread[THREADS];
	MPI_Type_vector(1, 1, 2, MPI_INT, &every_other);
	MPI_Type_create_resized(every_other, 0, 2 * sizeof(int), &every_other);
	MPI_Type_commit(&every_other);
	MPI_Psend_init(out, PARTS, 1, every_other, (rank + 1) % size, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &shared);
	MPI_Precv_init(in, 1, PARTS, MPI_INT, (rank + size - 1) % size, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 2 * PARTS; i++)
			out[i] = i % 2 ? -5 : round + i;
		MPI_Start(&shared), MPI_Start(&r[1]);
		r[0] = MPI_REQUEST_NULL;
		MPI_Irecv(&x, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, &r[2]);
		for (int i = 0; i < THREADS; i++)
			ids[i] = i, pthread_create(&thread[i], NULL, release, &ids[i]);
		MPI_Waitany(2, r, &index, MPI_STATUS_IGNORE);
		CHECK(index == 1);
		for (int i = 0; i < PARTS; i++)
			CHECK(in[i] == round + 2 * i);
		MPI_Send(&round, 1, MPI_INT, rank, 5, MPI_COMM_WORLD);
		MPI_Waitany(3, r, &index, MPI_STATUS_IGNORE);
		CHECK(index == 2 && x == round);
		for (int i = 0; i < THREADS; i++)
			pthread_join(thread[i], NULL);
		MPI_Wait(&shared, MPI_STATUS_IGNORE);
	}
	MPI_Waitsome(3, r, &left, &index, MPI_STATUSES_IGNORE); /* all are inactive */
	CHECK(left == MPI_UNDEFINED);
	MPI_Request_free(&shared), MPI_Request_free(&r[1]);
	MPI_Type_free(&every_other);
}

static void mistakes(void)
{
	int x[4] = {0}, flag;
	MPI_Request r, kept;
	MPI_Errhandler old;
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &old);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(class_of(MPI_Psend_init(x, 0, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &r)) == MPI_ERR_ARG);
	CHECK(class_of(MPI_Precv_init(x, 1, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &r)) == MPI_ERR_RANK);
	CHECK(class_of(MPI_Precv_init(x, 1, 1, MPI_INT, rank, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &r)) == MPI_ERR_TAG);
	MPI_Psend_init(x, 2, 2, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &r);
	kept = r;
	CHECK(class_of(MPI_Pready(0, r)) == MPI_ERR_REQUEST);
	MPI_Start(&r);
	CHECK(class_of(MPI_Start(&r)) == MPI_ERR_REQUEST && class_of(MPI_Cancel(&r)) == MPI_ERR_REQUEST);
	CHECK(class_of(MPI_Request_free(&r)) == MPI_ERR_REQUEST && r == kept);
	CHECK(class_of(MPI_Pready(2, r)) == MPI_ERR_ARG && class_of(MPI_Parrived(r, 0, &flag)) == MPI_ERR_REQUEST);
	MPI_Pready_range(0, 1, r);
	CHECK(MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS && MPI_Request_free(&r) == MPI_SUCCESS);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
}

int main(int argc, char **argv)
{
	int provided;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	ring();
	threads();
	mistakes();
	return finish();
}
