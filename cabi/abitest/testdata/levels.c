/* Each level of threads that a program may ask for, or none: levels LEVEL, or levels none. */

#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>

/* other is a thread that is not the one that called MPI_Init. */
static void *other(void *unused)
{
	int flag = -1, level = -1;
	CHECK(MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag == 0);
	CHECK(MPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE);
	return unused;
}

/* talk sends to the next rank and receives from the one before. */
static void *talk(void *unused)
{
	int in = -1, left = (rank + size - 1) % size;
	CHECK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &in, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS && in == left);
	return unused;
}

static void in_thread(void *(*function)(void *))
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, function, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"single", "funneled", "serialized", "multiple"};
	static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
	int provided = -1, asked = -1, flag = -1;
	CHECK(argc == 2);
	for (int i = 0; i < 4; i++)
		if (strcmp(argv[1], names[i]) == 0)
			asked = i;
	CHECK(MPI_THREAD_SINGLE < MPI_THREAD_FUNNELED && MPI_THREAD_FUNNELED < MPI_THREAD_SERIALIZED && MPI_THREAD_SERIALIZED < MPI_THREAD_MULTIPLE);
	if (asked >= 0)
		CHECK(MPI_Init_thread(&argc, &argv, levels[asked], &provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
	else
		CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	CHECK(MPI_Query_thread(&provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
	CHECK(MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag == 1);
	talk(NULL);
	if (asked >= 1)
		in_thread(other);
	if (asked >= 2)
		in_thread(talk);
	CHECK(MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag == 1);
	return finish();
}
