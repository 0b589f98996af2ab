/* What a rank of Open MPI or MPICH does: the same as rank.go, in C. Rank 0
 * takes orders on its standard input and passes them on to the others, which
 * sleep between orders so that they take no CPU from whoever's turn it is.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

static double processor_time(void) /* in ns, of all threads */
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

/* bind_to_processor binds this process, and threads that it starts, to the one of the processors that is this
 * rank's. The rank is the launcher's word, since MPI_Init starts threads. */
static void bind_to_processor(void)
{
	const char *number = getenv("OMPI_COMM_WORLD_RANK");
	if (number == NULL)
		number = getenv("PMI_RANK");
	cpu_set_t all, one;
	CPU_ZERO(&one);
	if (number == NULL || sched_getaffinity(0, sizeof all, &all) != 0) {
		fprintf(stderr, "p2p: which rank this is, or its processors, cannot be found out\n");
		exit(1);
	}
	int left = atoi(number) % CPU_COUNT(&all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && left-- == 0)
			CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof one, &one) != 0) {
		perror("p2p: binding to a processor");
		exit(1);
	}
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
	char done = 0;
	for (long k = 0; k < count; k++) {
		for (int i = 0; i < WINDOW; i++)
			if (rank == 0)
				MPI_Isend(out, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &r[i]);
			else
				MPI_Irecv(in, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &r[i]);
		MPI_Waitall(WINDOW, r, statuses);
		if (rank == 0)
			MPI_Recv(&done, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(&done, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
	}
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
	bind_to_processor();
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
		double start = now(), busy = processor_time(), ns = obey(&o), took = now() - start, used = 0;
		busy = processor_time() - busy;
		MPI_Reduce(&busy, &used, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
		free(out);
		free(in);
		if (rank == 0) {
			printf("ok %.1f %.3f\n", ns, used / took);
			fflush(stdout);
		}
	}
	MPI_Finalize();
	return 0;
}
