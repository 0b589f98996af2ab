/* Neighbourhood collectives on all topologies: blocking, nonblocking and persistent. */

#include "check.h"

#define MOST 32
#define GONE (-7) /* what is in memory that nothing is received into */

/* hood is the neighbours of a process: the i-th one that it receives from sends it its block slots[i]. */
struct hood {
	MPI_Comm comm;
	int in, out, sources[MOST], slots[MOST];
};

static int mine[MOST], in[4 * MOST], counts[MOST], displs[MOST], scounts[MOST], sdispls[MOST];
static MPI_Aint places[MOST], splaces[MOST];
static MPI_Datatype pair, types[MOST], stypes[MOST];

static void wipe(void)
{
	for (int i = 0; i < 4 * MOST; i++)
		in[i] = GONE;
}

/* Forms are blocking, nonblocking and persistent. */
#if MPI_VERSION >= 4
enum { FORMS = 3 };
#define INIT(name, ...) MPI_Neighbor_##name##_init(__VA_ARGS__)
#else
enum { FORMS = 2 };
#define INIT(name, ...) MPI_ERR_OTHER
#endif

/* EXCHANGE makes a call in one of its forms. A persistent one is started twice. */
#define EXCHANGE(name, ...) \
	do { \
		MPI_Request request = MPI_REQUEST_NULL; \
		wipe(); \
		if (form == 0) { \
			CHECK(MPI_Neighbor_##name(__VA_ARGS__, h->comm) == MPI_SUCCESS); \
		} else if (form == 1) { \
			CHECK(MPI_Ineighbor_##name(__VA_ARGS__, h->comm, &request) == MPI_SUCCESS); \
			CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && request == MPI_REQUEST_NULL); \
		} else { \
			CHECK(INIT(name, __VA_ARGS__, h->comm, MPI_INFO_NULL, &request) == MPI_SUCCESS); \
			for (int i = 0; i < 2; i++) { \
				wipe(); \
				CHECK(MPI_Start(&request) == MPI_SUCCESS); \
				CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && request != MPI_REQUEST_NULL); \
			} \
			CHECK(MPI_Request_free(&request) == MPI_SUCCESS); \
		} \
	} while (0)

static void gathers(const struct hood *h, int form, int me)
{
	for (int i = 0; i < MOST; i++)
		mine[i] = me + 100 * i;
	EXCHANGE(allgather, mine, 2, MPI_INT, in, 1, pair);
	for (int i = 0; i < h->in; i++) {
		int s = h->sources[i];
		CHECK(in[2 * i] == (s < 0 ? GONE : s) && in[2 * i + 1] == (s < 0 ? GONE : s + 100));
	}
	CHECK(in[2 * h->in] == GONE);

	/* Rank r sends r+1 numbers. Blocks have gaps, and are in reverse order. */
	int at = 0;
	for (int i = h->in - 1; i >= 0; i--) {
		counts[i] = h->sources[i] < 0 ? 1 : h->sources[i] + 1;
		displs[i] = at;
		at += counts[i] + 1;
	}
	EXCHANGE(allgatherv, mine, me + 1, MPI_INT, in, counts, displs, MPI_INT);
	for (int i = 0; i < h->in; i++) {
		for (int j = 0; j < counts[i]; j++)
			CHECK(in[displs[i] + j] == (h->sources[i] < 0 ? GONE : h->sources[i] + 100 * j));
		CHECK(in[displs[i] + counts[i]] == GONE);
	}
}

/* received checks block i, which begins at a place and has n numbers of those that follow the first one. */
static void received(const struct hood *h, int i, int at, int n)
{
	int s = h->sources[i], first = 1000 * s + 10 * h->slots[i];
	for (int j = 0; j < n; j++)
		CHECK(in[at + j] == (s < 0 ? GONE : first + j));
	CHECK(in[at + n] == GONE);
}

static void alltoalls(const struct hood *h, int form, int me)
{
	for (int j = 0; j < h->out; j++)
		mine[2 * j] = 1000 * me + 10 * j, mine[2 * j + 1] = mine[2 * j] + 1;
	EXCHANGE(alltoall, mine, 1, pair, in, 2, MPI_INT);
	for (int i = 0; i < h->in; i++) {
		int first = h->sources[i] < 0 ? GONE : 1000 * h->sources[i] + 10 * h->slots[i];
		CHECK(in[2 * i] == first && in[2 * i + 1] == (first == GONE ? GONE : first + 1));
	}
	CHECK(in[2 * h->in] == GONE);

	/* Block j has one number or two, in reverse order. */
	for (int j = 0; j < h->out; j++) {
		sdispls[j] = 2 * (h->out - 1 - j), scounts[j] = 1 + j % 2;
		mine[sdispls[j]] = 1000 * me + 10 * j, mine[sdispls[j] + 1] = mine[sdispls[j]] + 1;
	}
	for (int i = 0; i < h->in; i++)
		displs[i] = 3 * i, counts[i] = 1 + h->slots[i] % 2;
	EXCHANGE(alltoallv, mine, scounts, sdispls, MPI_INT, in, counts, displs, MPI_INT);
	for (int i = 0; i < h->in; i++)
		received(h, i, displs[i], counts[i]);

	/* The same with a type for each block, and addresses. */
	for (int j = 0; j < h->out; j++)
		splaces[j] = 4 * sdispls[j], stypes[j] = j % 2 ? pair : MPI_INT, scounts[j] = 1;
	for (int i = 0; i < h->in; i++) {
		MPI_Get_address(&in[displs[i]], &places[i]);
		types[i] = MPI_INT;
	}
	EXCHANGE(alltoallw, mine, scounts, splaces, stypes, MPI_BOTTOM, counts, places, types);
	for (int i = 0; i < h->in; i++)
		received(h, i, displs[i], counts[i]);
}

/* Counts of 64 bits. */
#if MPI_VERSION >= 4
static void large(const struct hood *h, int me)
{
	MPI_Count one[MOST], two[MOST];
	for (int i = 0; i < MOST; i++)
		one[i] = 1, two[i] = 2, splaces[i] = 8 * i, places[i] = 12 * i, types[i] = MPI_INT, stypes[i] = pair;
	for (int j = 0; j < h->out; j++)
		mine[2 * j] = 1000 * me + 10 * j, mine[2 * j + 1] = mine[2 * j] + 1;
	wipe();
	CHECK(MPI_Neighbor_alltoallw_c(mine, one, splaces, stypes, in, two, places, types, h->comm) == MPI_SUCCESS);
	for (int i = 0; i < h->in; i++)
		received(h, i, 3 * i, 2);
	for (int i = 0; i < MOST; i++)
		splaces[i] = 2 * i, places[i] = 3 * i;
	wipe();
	CHECK(MPI_Neighbor_alltoallv_c(mine, two, splaces, MPI_INT, in, two, places, MPI_INT, h->comm) == MPI_SUCCESS);
	for (int i = 0; i < h->in; i++)
		received(h, i, 3 * i, 2);
}
#else
static void large(const struct hood *h, int me) {}
#endif

static void errors(const struct hood *h)
{
	MPI_Request request = MPI_REQUEST_NULL;
	int x = 0;
	MPI_Comm_set_errhandler(h->comm, MPI_ERRORS_RETURN);
	CHECK(MPI_Neighbor_allgather(MPI_IN_PLACE, 1, MPI_INT, in, 1, MPI_INT, h->comm) == MPI_ERR_BUFFER);
	CHECK(MPI_Neighbor_alltoallw(MPI_IN_PLACE, counts, places, types, in, counts, places, types, h->comm) == MPI_ERR_BUFFER);
	CHECK(MPI_Neighbor_allgather(&x, -1, MPI_INT, in, 1, MPI_INT, h->comm) == MPI_ERR_COUNT);
	CHECK(MPI_Ineighbor_allgather(&x, 1, MPI_DATATYPE_NULL, in, 1, MPI_INT, h->comm, &request) == MPI_ERR_TYPE && request == MPI_REQUEST_NULL);
}

static void exchanges(struct hood *h)
{
	int me;
	if (h->comm == MPI_COMM_NULL)
		return;
	MPI_Comm_rank(h->comm, &me);
	for (int form = 0; form < FORMS; form++) {
		gathers(h, form, me);
		alltoalls(h, form, me);
	}
	large(h, me);
	errors(h);
	MPI_Comm_free(&h->comm);
}

/* What goes down arrives from above, also where both neighbours are one process. */
static void cartesian(int ndims, const int *dims, const int *periods)
{
	struct hood h = {MPI_COMM_NULL, 2 * ndims, 2 * ndims, {0}, {0}};
	MPI_Cart_create(MPI_COMM_WORLD, ndims, dims, periods, 0, &h.comm);
	for (int i = 0; i < ndims && h.comm != MPI_COMM_NULL; i++) {
		MPI_Cart_shift(h.comm, i, 1, &h.sources[2 * i], &h.sources[2 * i + 1]);
		h.slots[2 * i] = 2 * i + 1, h.slots[2 * i + 1] = 2 * i;
	}
	exchanges(&h);
}

/* match finds the blocks: edges between the same two processes are matched in their order. */
static void match(struct hood *h, int (*sends)(int from, int *to))
{
	for (int i = 0; i < h->in; i++) {
		int to[MOST], n = sends(h->sources[i], to), earlier = 0;
		for (int j = 0; j < i; j++)
			earlier += h->sources[j] == h->sources[i];
		for (int j = 0; j < n; j++)
			if (to[j] == rank && earlier-- == 0)
				h->slots[i] = j;
	}
}

/* A ring in which each is its own neighbour, too. */
static int ring(int from, int *to)
{
	to[0] = (from + size - 1) % size, to[1] = (from + 1) % size, to[2] = from;
	return 3;
}

static void graph(void)
{
	struct hood h = {MPI_COMM_NULL, 3, 3, {0}, {0}};
	int index[MOST], edges[3 * MOST];
	for (int i = 0; i < size; i++)
		index[i] = 3 * (i + 1), ring(i, edges + 3 * i);
	ring(rank, h.sources);
	match(&h, ring);
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &h.comm) == MPI_SUCCESS);
	exchanges(&h);
}

/* Each sends to its successor, and twice to rank 0, which sends to its successor only. */
static int funnel(int from, int *to)
{
	to[0] = (from + 1) % size, to[1] = to[2] = 0;
	return from == 0 ? 1 : 3;
}

static void directed(void)
{
	struct hood h = {MPI_COMM_NULL, 0, 0, {0}, {0}};
	int to[MOST];
	h.out = funnel(rank, to);
	for (int from = size - 1; from >= 0; from--) {
		int theirs[MOST], n = funnel(from, theirs);
		for (int j = 0; j < n; j++)
			if (theirs[j] == rank)
				h.sources[h.in++] = from;
	}
	match(&h, funnel);
	CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, h.in, h.sources, MPI_UNWEIGHTED, h.out, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &h.comm) == MPI_SUCCESS);
	exchanges(&h);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	const int grid[2] = {size > 1 ? 2 : 1, size > 2 ? (size - 1) / 2 : 1}, periods[2] = {0, 1}, all[1] = {size}, ring1[1] = {1}, line[1] = {0};
	cartesian(2, grid, periods);
	cartesian(1, all, ring1);
	cartesian(1, all, line);
	cartesian(0, NULL, NULL);
	graph();
	directed();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(MPI_Neighbor_alltoall(mine, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD) == MPI_ERR_TOPOLOGY);
	CHECK(MPI_Neighbor_alltoall(mine, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_NULL) == MPI_ERR_COMM);
	MPI_Type_free(&pair);
	return finish();
}
