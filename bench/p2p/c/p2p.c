/* What a rank of Open MPI or MPICH does: the same as rank.go, in C. Rank 0
 * takes orders on its standard input and passes them on to the others, which
 * sleep between orders so that they take no CPU from whoever's turn it is.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64, BLOCKS = 20, TAG = 1, ORDER_TAG = 2 };

struct order {
	char what[16];
	long size, count;
};

static int rank, ranks;
static char *out, *in; /* size bytes each */
static int size;

static void fail(const char *what)
{
	fprintf(stderr, "p2p: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static double now(void) /* in ns */
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void mark(char m)
{
	if (size > 0)
		out[0] = out[size - 1] = m;
}

static void check(char m)
{
	if (size > 0 && (in[0] != m || in[size - 1] != m))
		fail("another message arrived");
}

static void sendto(int to) { MPI_Send(out, size, MPI_BYTE, to, TAG, MPI_COMM_WORLD); }
static void recvfrom(int from) { MPI_Recv(in, size, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void trip(long i)
{
	if (rank == 0) {
		mark((char)i);
		sendto(1);
		recvfrom(1);
		check((char)i);
	} else if (rank == 1) {
		recvfrom(0);
		mark((char)i);
		sendto(0);
	}
}

static void round_of_ring(long i)
{
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	if (rank == 0) {
		mark((char)i);
		sendto(next);
		recvfrom(last);
		check((char)i);
	} else {
		recvfrom(last);
		mark((char)i);
		sendto(next);
	}
}

static void barrier(long i)
{
	(void)i;
	MPI_Barrier(MPI_COMM_WORLD);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* repeated does step count times after a tenth as many to warm up, in up to
 * BLOCKS blocks, and returns the ns of one in the middle block. */
static double repeated(void (*step)(long), long count)
{
	double took[BLOCKS];
	long blocks = count < BLOCKS ? count : BLOCKS, done = 0;
	for (long i = 0; i < count / 10 + 1; i++)
		step(i);
	for (long b = 0; b < blocks; b++) {
		long until = count * (b + 1) / blocks, first = done;
		double start = now();
		for (; done < until; done++)
			step(done);
		took[b] = (now() - start) / (until - first);
	}
	qsort(took, (size_t)blocks, sizeof took[0], ascending);
	return (took[(blocks - 1) / 2] + took[blocks / 2]) / 2;
}

static void windows(long count)
{
	MPI_Request r[WINDOW];
	MPI_Status statuses[WINDOW]; /* with MPI_STATUSES_IGNORE gcc warns of MPICH's header */
	for (long k = 0; k < count; k++) {
		for (int i = 0; i < WINDOW; i++)
			if (rank == 0)
				MPI_Isend(out, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &r[i]);
			else
				MPI_Irecv(in, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &r[i]);
		MPI_Waitall(WINDOW, r, statuses);
	}
	char done = 0;
	if (rank == 0)
		MPI_Recv(&done, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(&done, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

/* stream returns the ns of a window, once one has warmed up. */
static double stream(long count)
{
	if (rank > 1)
		return 0;
	windows(1);
	double start = now();
	windows(count);
	return (now() - start) / count;
}

static double obey(const struct order *o)
{
	if (strcmp(o->what, "trips") == 0)
		return repeated(trip, o->count);
	if (strcmp(o->what, "stream") == 0)
		return stream(o->count);
	if (strcmp(o->what, "ring") == 0)
		return repeated(round_of_ring, o->count);
	if (strcmp(o->what, "barrier") == 0)
		return repeated(barrier, o->count);
	fail("unknown order");
	return 0;
}

/* next_order returns 0 when there is none any more. */
static int next_order(struct order *o)
{
	if (rank == 0) {
		if (scanf("%15s %ld %ld", o->what, &o->size, &o->count) != 3)
			o->what[0] = 0;
		for (int to = 1; to < ranks; to++)
			MPI_Send(o, sizeof *o, MPI_BYTE, to, ORDER_TAG, MPI_COMM_WORLD);
	} else {
		MPI_Request r;
		int there = 0;
		MPI_Irecv(o, sizeof *o, MPI_BYTE, 0, ORDER_TAG, MPI_COMM_WORLD, &r);
		while (MPI_Test(&r, &there, MPI_STATUS_IGNORE), !there)
			usleep(2000);
	}
	return o->what[0] != 0;
}

int main(int argc, char **argv)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Get_library_version(version, &length);
	char *number = version + strcspn(version, "0123456789"); /* before it the name, behind it how it was built */
	number[strspn(number, "0123456789.abrc")] = 0;
	if (rank == 0) {
		printf("ready %d %s\n", ranks, number);
		fflush(stdout);
	}
	for (struct order o; next_order(&o);) {
		size = (int)o.size;
		out = malloc((size_t)size + 1);
		in = malloc((size_t)size + 1);
		if (out == NULL || in == NULL)
			fail("no memory");
		memset(out, 'x', (size_t)size + 1); /* the pages are there from now on */
		memset(in, 'x', (size_t)size + 1);
		double ns = obey(&o);
		free(out);
		free(in);
		if (rank == 0) {
			printf("ok %.1f\n", ns);
			fflush(stdout);
		}
	}
	MPI_Finalize();
	return 0;
}
