/* What a rank does that is compiled with Open MPI, MPICH or our library for C: the same as rank.go, and a few
 * orders more. Rank 0 takes orders on its standard input and passes them on to the others, which sleep between orders so
 * that they take no CPU from whoever's turn it is. An argument says that there is but one rank: with two "threads", or
 * a "singleton" that no launcher has started.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64, BLOCKS = 20, TAG = 1, ORDER_TAG = 2, BACK_TAG = 3 };

static const double COMPUTING = 1e6; /* ns */

struct order {
	char what[16];
	long size, count;
};

static int rank, ranks;
static double init_took;      /* in ns, from the start of the program; of a singleton */
static double init_resident; /* in KiB, after MPI_Init */
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

/* bind_to binds the calling thread, and threads that it starts, to one of the processors that it may use. */
static void bind_to(int number)
{
	cpu_set_t all, one;
	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof all, &all) != 0) {
		perror("p2p: asking for processors");
		exit(1);
	}
	int left = number % CPU_COUNT(&all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && left-- == 0)
			CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof one, &one) != 0) {
		perror("p2p: binding to a processor");
		exit(1);
	}
}

/* bind_to_processor binds this process to the processor that is this rank's. The rank is the launcher's word, since
 * MPI_Init starts threads. */
static void bind_to_processor(void)
{
	const char *number = getenv("OMPI_COMM_WORLD_RANK");
	if (number == NULL)
		number = getenv("PMI_RANK");
	if (number == NULL)
		number = getenv("ISTHMUS_RANK");
	if (number == NULL) {
		fprintf(stderr, "p2p: which rank this is cannot be found out\n");
		exit(1);
	}
	bind_to(atoi(number));
}

/* started returns when this program was started, loading included: it starts itself once more to know. */
static double started(char **argv)
{
	const char *at = getenv("P2P_STARTED");
	char text[32];
	if (at != NULL)
		return atof(at);
	snprintf(text, sizeof text, "%.0f", now());
	setenv("P2P_STARTED", text, 1);
	execv("/proc/self/exe", argv);
	perror("p2p: starting once more");
	exit(1);
}

static double resident(void) /* in KiB */
{
	char line[256];
	double kib = 0;
	FILE *status = fopen("/proc/self/status", "r");
	while (status != NULL && fgets(line, sizeof line, status) != NULL)
		sscanf(line, "VmRSS: %lf", &kib);
	if (status != NULL)
		fclose(status);
	return kib;
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

static double median(double *all, long count)
{
	qsort(all, (size_t)count, sizeof all[0], ascending);
	return (all[(count - 1) / 2] + all[count / 2]) / 2;
}

static long warm_up(long count) { return count / 10 + 1; }

/* repeated does step count times after a tenth as many to warm up, in up to
 * BLOCKS blocks, and returns the ns of one in the middle block. */
static double repeated(void (*step)(long), long count)
{
	double took[BLOCKS];
	long blocks = count < BLOCKS ? count : BLOCKS, done = 0;
	for (long i = 0; i < warm_up(count); i++)
		step(i);
	for (long b = 0; b < blocks; b++) {
		long until = count * (b + 1) / blocks, first = done;
		double start = now();
		for (; done < until; done++)
			step(done);
		took[b] = (now() - start) / (until - first);
	}
	return median(took, blocks);
}

/* compute keeps the processor busy without a call of MPI. */
static void compute(double ns)
{
	volatile double x = 1;
	for (double until = now() + ns; now() < until;)
		for (int i = 0; i < 100; i++)
			x = x * 1.000001;
}

/* after_computing returns the ns of a round trip for which both ranks come from computing. */
static double after_computing(long count)
{
	double *took = malloc((size_t)count * sizeof took[0]);
	if (took == NULL)
		fail("no memory");
	trip(0);
	for (long i = 0; i < count; i++) {
		compute(COMPUTING);
		double start = now();
		trip(i);
		took[i] = now() - start;
	}
	double ns = median(took, count);
	free(took);
	return ns;
}

static void thread_trip(long i)
{
	mark((char)i);
	MPI_Send(out, size, MPI_BYTE, rank, TAG, MPI_COMM_WORLD);
	MPI_Recv(in, size, MPI_BYTE, rank, BACK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check((char)i);
}

/* other_thread sends so many messages back. */
static void *other_thread(void *count)
{
	char *message = malloc((size_t)size + 1);
	if (message == NULL)
		fail("no memory");
	bind_to(1);
	for (long left = *(long *)count; left > 0; left--) {
		MPI_Recv(message, size, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(message, size, MPI_BYTE, rank, BACK_TAG, MPI_COMM_WORLD);
	}
	free(message);
	return NULL;
}

/* threads returns the ns of a round trip between two threads of this process. */
static double threads(long count)
{
	long all = count + warm_up(count);
	pthread_t other;
	if (pthread_create(&other, NULL, other_thread, &all) != 0)
		fail("no thread");
	cpu_set_t before;
	sched_getaffinity(0, sizeof before, &before);
	bind_to(0);
	double ns = repeated(thread_trip, count);
	sched_setaffinity(0, sizeof before, &before); /* which the next one starts with */
	pthread_join(other, NULL);
	return ns;
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
	if (strcmp(o->what, "gaps") == 0)
		return after_computing(o->count);
	if (strcmp(o->what, "threads") == 0)
		return threads(o->count);
	if (strcmp(o->what, "init") == 0)
		return init_took;
	if (strcmp(o->what, "memory") == 0)
		return init_resident;
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
	int length, provided = MPI_THREAD_MULTIPLE;
	const char *mode = argc > 1 ? argv[1] : "";
	if (strcmp(mode, "singleton") == 0) {
		double start = started(argv);
		MPI_Init(&argc, &argv);
		init_took = now() - start;
		init_resident = resident();
	} else if (strcmp(mode, "threads") == 0) {
		MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	} else {
		bind_to_processor();
		MPI_Init(&argc, &argv);
	}
	if (provided < MPI_THREAD_MULTIPLE)
		fail("threads may not call MPI at the same time");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Get_library_version(version, &length);
	char *number = version + strcspn(version, "0123456789"); /* before it the name, behind it how it was built */
	number[strspn(number, "0123456789.abrc")] = 0;
	if (rank == 0) {
		printf("ready %d %s\n", ranks, *number ? number : "-");
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
