/* What a rank of Open MPI or MPICH does: the same as rank_linux.go, in C. The
 * language of the orders is described in order.go. Between orders ranks sleep,
 * so that they take no CPU from whoever's turn it is.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ORDER_TAG = 1, START_TAG = 2, DONE_TAG = 3, NAME_TAG = 4, NAME = 64, TRIES = 12 };

struct order {
	char what[32];
	long size, root, warm, count;
	double ahead; /* ns */
};

static int rank, ranks;
static char *out, *in;		/* of ranks blocks each */
static int *counts, *displs;	/* ranks blocks of size bytes */
static int size, root;		/* of the order */
static int numbers;		/* size in doubles */

static void fail(const char *what)
{
	fprintf(stderr, "coll: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static double now(void) /* in ns, the same for all ranks of the machine */
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void sleep_until(double at)
{
	struct timespec t;
	t.tv_sec = (time_t)(at / 1e9);
	t.tv_nsec = (long)(at - t.tv_sec * 1e9);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
		;
}

#define ALL MPI_COMM_WORLD
static void barrier(void) { MPI_Barrier(ALL); }
static void bcast(void) { MPI_Bcast(out, size, MPI_BYTE, root, ALL); }
static void reduce(void) { MPI_Reduce(out, in, numbers, MPI_DOUBLE, MPI_SUM, root, ALL); }
static void allreduce(void) { MPI_Allreduce(out, in, numbers, MPI_DOUBLE, MPI_SUM, ALL); }
static void scan(void) { MPI_Scan(out, in, numbers, MPI_DOUBLE, MPI_SUM, ALL); }
static void exscan(void) { MPI_Exscan(out, in, numbers, MPI_DOUBLE, MPI_SUM, ALL); }
static void reduce_scatter_block(void) { MPI_Reduce_scatter_block(out, in, numbers, MPI_DOUBLE, MPI_SUM, ALL); }
static void gather(void) { MPI_Gather(out, size, MPI_BYTE, in, size, MPI_BYTE, root, ALL); }
static void gatherv(void) { MPI_Gatherv(out, size, MPI_BYTE, in, counts, displs, MPI_BYTE, root, ALL); }
static void scatter(void) { MPI_Scatter(out, size, MPI_BYTE, in, size, MPI_BYTE, root, ALL); }
static void scatterv(void) { MPI_Scatterv(out, counts, displs, MPI_BYTE, in, size, MPI_BYTE, root, ALL); }
static void allgather(void) { MPI_Allgather(out, size, MPI_BYTE, in, size, MPI_BYTE, ALL); }
static void allgatherv(void) { MPI_Allgatherv(out, size, MPI_BYTE, in, counts, displs, MPI_BYTE, ALL); }
static void alltoall(void) { MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, ALL); }
static void alltoallv(void) { MPI_Alltoallv(out, counts, displs, MPI_BYTE, in, counts, displs, MPI_BYTE, ALL); }

static const struct {
	const char *name;
	void (*call)(void);
} collectives[] = {
	{"barrier", barrier}, {"bcast", bcast}, {"reduce", reduce}, {"allreduce", allreduce}, {"scan", scan}, {"exscan", exscan},
	{"reduce_scatter_block", reduce_scatter_block}, {"gather", gather}, {"gatherv", gatherv}, {"scatter", scatter},
	{"scatterv", scatterv}, {"allgather", allgather}, {"allgatherv", allgatherv}, {"alltoall", alltoall}, {"alltoallv", alltoallv},
};

static void prepare(const struct order *o)
{
	size = (int)o->size;
	root = (int)o->root;
	numbers = size / (int)sizeof(double);
	size_t all = (size_t)size * ranks + sizeof(double);
	out = malloc(all);
	in = malloc(all);
	counts = malloc(ranks * sizeof *counts);
	displs = malloc(ranks * sizeof *displs);
	if (out == NULL || in == NULL || counts == NULL || displs == NULL)
		fail("no memory");
	memset(out, 0, all); /* the pages are there from now on */
	memset(in, 0, all);
	for (int r = 0; r < ranks; r++) {
		counts[r] = size;
		displs[r] = size * r;
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* One repetition of all ranks. at is when to begin; took is how long it was from
 * then to the end of the slowest, late how late the last began, and missed how
 * late the last was told. Only rank 0 knows them. */
static void repetition(void (*call)(void), double at, double *took, double *late, double *missed)
{
	double said[3], worst[3] = {0, 0, 0};
	said[2] = now() - at;
	sleep_until(at);
	said[1] = now() - at;
	call();
	said[0] = now() - at;
	if (rank != 0) {
		MPI_Send(said, 3, MPI_DOUBLE, 0, DONE_TAG, ALL);
		return;
	}
	memcpy(worst, said, sizeof worst);
	for (int r = 1; r < ranks; r++) {
		MPI_Recv(said, 3, MPI_DOUBLE, r, DONE_TAG, ALL, MPI_STATUS_IGNORE);
		for (int i = 0; i < 3; i++)
			if (said[i] > worst[i])
				worst[i] = said[i];
	}
	*took = worst[0];
	*late = worst[1];
	*missed = worst[2];
}

/* by_clock has the ranks begin at a time that rank 0 tells them beforehand. */
static void by_clock(void (*call)(void), const struct order *o, double *took, double *late)
{
	double at, missed, ahead = o->ahead;
	if (rank != 0) {
		for (;;) {
			MPI_Recv(&at, 1, MPI_DOUBLE, 0, START_TAG, ALL, MPI_STATUS_IGNORE);
			if (at < 0)
				return;
			repetition(call, at, NULL, NULL, NULL);
		}
	}
	for (long i = -o->warm, tries = 0; i < o->count;) {
		long k = i < 0 ? 0 : i;
		at = now() + ahead;
		for (int r = 1; r < ranks; r++)
			MPI_Send(&at, 1, MPI_DOUBLE, r, START_TAG, ALL);
		repetition(call, at, &took[k], &late[k], &missed);
		if (missed <= 0) {
			i++;
			tries = 0;
		} else if (++tries == TRIES) {
			fail("the others are never told in time when to begin");
		} else {
			ahead = 2 * ahead + 1e6;
		}
	}
	at = -1;
	for (int r = 1; r < ranks; r++)
		MPI_Send(&at, 1, MPI_DOUBLE, r, START_TAG, ALL);
}

/* by_barrier has each repetition begin when the first rank leaves a barrier. It ends with the slowest. */
static void by_barrier(void (*call)(void), const struct order *o, double *took, double *late)
{
	long count = o->count;
	double *began = malloc(4 * count * sizeof *began), *ended = began + count, *others = ended + count;
	if (began == NULL)
		fail("no memory");
	for (long i = -o->warm; i < count; i++) {
		long k = i < 0 ? 0 : i;
		MPI_Barrier(ALL);
		began[k] = now();
		call();
		ended[k] = now();
	}
	if (rank != 0)
		MPI_Send(began, (int)(2 * count), MPI_DOUBLE, 0, DONE_TAG, ALL);
	for (int r = 1; rank == 0 && r < ranks; r++) {
		MPI_Recv(others, (int)(2 * count), MPI_DOUBLE, r, DONE_TAG, ALL, MPI_STATUS_IGNORE);
		for (long i = 0; i < count; i++) {
			if (others[i] < began[i])
				began[i] = others[i];
			if (others[count + i] > ended[i])
				ended[i] = others[count + i];
		}
	}
	for (long i = 0; i < count; i++)
		took[i] = ended[i] - began[i];
	memset(late, 0, count * sizeof *late);
	free(began);
}

static void obey(const struct order *o)
{
	void (*call)(void) = NULL;
	for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
		if (strcmp(collectives[i].name, o->what) == 0)
			call = collectives[i].call;
	if (call == NULL) {
		if (rank == 0)
			printf("no collective %s\n", o->what);
		return;
	}
	double *took = malloc(o->count * sizeof *took), *late = malloc(o->count * sizeof *late);
	if (took == NULL || late == NULL)
		fail("no memory");
	prepare(o);
	if (o->ahead > 0)
		by_clock(call, o, took, late);
	else
		by_barrier(call, o, took, late);
	if (rank == 0) {
		qsort(late, (size_t)o->count, sizeof *late, ascending);
		printf("ok %.0f", late[o->count / 2]);
		for (long i = 0; i < o->count; i++)
			printf(" %.0f", took[i]);
		printf("\n");
	}
	free(took);
	free(late);
	free(out);
	free(in);
	free(counts);
	free(displs);
}

/* next_order returns 0 when there is none any more. */
static int next_order(struct order *o)
{
	if (rank == 0) {
		if (scanf(" time %31s %ld %ld %ld %ld %lf", o->what, &o->size, &o->root, &o->warm, &o->count, &o->ahead) != 6)
			o->what[0] = 0;
		for (int to = 1; to < ranks; to++)
			MPI_Send(o, sizeof *o, MPI_BYTE, to, ORDER_TAG, ALL);
	} else {
		MPI_Request r;
		int there = 0;
		MPI_Irecv(o, sizeof *o, MPI_BYTE, 0, ORDER_TAG, ALL, &r);
		while (MPI_Test(&r, &there, MPI_STATUS_IGNORE), !there)
			usleep(10000);
	}
	return o->what[0] != 0;
}

/* introduce says where the ranks are, once all have joined. */
static void introduce(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING], name[NAME] = "";
	int length;
	gethostname(name, NAME - 1);
	if (rank != 0) {
		MPI_Send(name, NAME, MPI_BYTE, 0, NAME_TAG, ALL);
		return;
	}
	MPI_Get_library_version(version, &length);
	char *number = version + strcspn(version, "0123456789"); /* before it the name, behind it how it was built */
	number[strspn(number, "0123456789.abrc")] = 0;
	printf("ready %s %s", number, name);
	for (int r = 1; r < ranks; r++) {
		MPI_Recv(name, NAME, MPI_BYTE, r, NAME_TAG, ALL, MPI_STATUS_IGNORE);
		printf(" %s", name);
	}
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(ALL, &rank);
	MPI_Comm_size(ALL, &ranks);
	introduce();
	for (struct order o; next_order(&o);) {
		obey(&o);
		if (rank == 0)
			fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
