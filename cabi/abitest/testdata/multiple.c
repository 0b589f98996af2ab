/* Several threads of a process call MPI at once. */

#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <stdint.h>

enum { THREADS = 4, ROUNDS = 300, N = 5000 };

static MPI_Comm comms[THREADS];

static void *talk(void *argument)
{
	int id = (int)(intptr_t)argument, right = (rank + 1) % size, left = (rank + size - 1) % size, flag = -1;
	static int out[THREADS][N], in[THREADS][N];
	CHECK(MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag == 0);
	for (int i = 0; i < ROUNDS; i++) {
		int n = i % 2 ? 1 : N, tag = 10 * id, sum = 0, one = id + 1;
		MPI_Request r[2];
		MPI_Status s[2];
		out[id][n - 1] = rank + 1000 * id + i;
		MPI_Irecv(in[id], n, MPI_INT, left, tag, MPI_COMM_WORLD, &r[0]);
		MPI_Isend(out[id], n, MPI_INT, right, tag, MPI_COMM_WORLD, &r[1]);
		CHECK(MPI_Waitall(2, r, s) == MPI_SUCCESS && s[0].MPI_TAG == tag && in[id][n - 1] == left + 1000 * id + i);
		CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[id]) == MPI_SUCCESS && sum == size * (id + 1));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int provided = -1, flag = 0;
	CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
	provided = -1;
	CHECK(MPI_Query_thread(&provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
	CHECK(MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag == 1);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, talk, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return finish();
}
