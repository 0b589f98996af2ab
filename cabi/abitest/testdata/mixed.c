/* Ranks in C of a job that has ranks in Go, too: what mixed_system_test.go does, in C. With the argument "types" types are checked. */

#include "check.h"

#include <stdbool.h>

/* value is what a rank sends at a place. */
static int value(int from, int i)
{
	return from * 1000 + i % 1000;
}

static int *numbers(int from, int n)
{
	int *all = malloc(sizeof *all * (size_t)(n + 1));
	for (int i = 0; i < n; i++)
		all[i] = value(from, i);
	return all;
}

/* are is whether n numbers, step apart, are what a rank has sent. */
static int are(const int *all, int from, int n, int step)
{
	for (int i = 0; i < n; i++)
		if (all[i * step] != value(from, i))
			return 0;
	return 1;
}

static void messages(MPI_Comm comm, int n)
{
	int me, all, count;
	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	int right = (me + 1) % all, left = (me + all - 1) % all;
	int *out = numbers(me, n), *in = calloc((size_t)(2 * n * all), sizeof *in);
	MPI_Status status;
	MPI_Datatype column;
	CHECK(MPI_Sendrecv(out, n, MPI_INT, right, 1, in, 2 * n, MPI_INT, left, 1, comm, &status) == MPI_SUCCESS);
	MPI_Get_count(&status, MPI_INT, &count);
	CHECK(count == n && status.MPI_SOURCE == left && status.MPI_TAG == 1 && are(in, left, n, 1));

	MPI_Request *r = malloc(sizeof *r * 2 * (size_t)all);
	for (int p = 0; p < all; p++) {
		MPI_Irecv(in + p * n, n, MPI_INT, p, 2, comm, &r[p]);
		MPI_Isend(out, n, MPI_INT, p, 2, comm, &r[all + p]);
	}
	CHECK(MPI_Waitall(2 * all, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
	for (int p = 0; p < all; p++)
		CHECK(are(in + p * n, p, n, 1));

	MPI_Type_vector(n, 1, 2, MPI_INT, &column);
	MPI_Type_commit(&column);
	for (int i = 0; i < n; i++)
		in[2 * i] = out[i];
	CHECK(MPI_Sendrecv_replace(in, 1, column, right, 3, left, 3, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	CHECK(are(in, left, n, 2));
	MPI_Type_free(&column);

	if (me > 0)
		CHECK(MPI_Ssend(out, n, MPI_INT, 0, 10 + me, comm) == MPI_SUCCESS);
	else
		for (int i = 1; i < all; i++) {
			MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
			MPI_Get_count(&status, MPI_INT, &count);
			CHECK(count == n && status.MPI_TAG == 10 + status.MPI_SOURCE);
			MPI_Recv(in, n, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, comm, MPI_STATUS_IGNORE);
			CHECK(are(in, status.MPI_SOURCE, n, 1));
		}
	free(r);
	free(out);
	free(in);
}

static void moves(MPI_Comm comm, int n)
{
	int me, all;
	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	int *out = numbers(me, n * all), *in = calloc((size_t)(2 * n * all * all), sizeof *in);
	int *counts = calloc((size_t)(4 * all), sizeof *counts), *displs = counts + all, *sent = displs + all, *at = sent + all;
	for (int root = 0; root < all; root++) {
		if (me == root)
			memcpy(in, out, sizeof *in * (size_t)n);
		CHECK(MPI_Bcast(in, n, MPI_INT, root, comm) == MPI_SUCCESS && are(in, root, n, 1));
		CHECK(MPI_Gather(out, n, MPI_INT, in, n, MPI_INT, root, comm) == MPI_SUCCESS);
		for (int p = 0; p < all && me == root; p++)
			CHECK(are(in + p * n, p, n, 1));
		CHECK(MPI_Scatter(out, n, MPI_INT, in, n, MPI_INT, root, comm) == MPI_SUCCESS);
		for (int i = 0; i < n; i++)
			CHECK(in[i] == value(root, me * n + i));
	}
	for (int p = 0, end = 0; p < all; p++) {
		counts[p] = p * n;
		displs[p] = end;
		end += counts[p];
	}
	int *mine = numbers(me, counts[me]);
	CHECK(MPI_Gatherv(mine, counts[me], MPI_INT, in, counts, displs, MPI_INT, 0, comm) == MPI_SUCCESS);
	for (int p = 0; p < all && me == 0; p++)
		CHECK(are(in + displs[p], p, counts[p], 1));
	CHECK(MPI_Scatterv(in, counts, displs, MPI_INT, mine, counts[me], MPI_INT, 0, comm) == MPI_SUCCESS);
	CHECK(are(mine, me, counts[me], 1));
	CHECK(MPI_Allgather(out, n, MPI_INT, in, n, MPI_INT, comm) == MPI_SUCCESS);
	for (int p = 0; p < all; p++)
		CHECK(are(in + p * n, p, n, 1));
	CHECK(MPI_Allgatherv(mine, counts[me], MPI_INT, in, counts, displs, MPI_INT, comm) == MPI_SUCCESS);
	for (int p = 0; p < all; p++)
		CHECK(are(in + displs[p], p, counts[p], 1));
	CHECK(MPI_Alltoall(out, n, MPI_INT, in, n, MPI_INT, comm) == MPI_SUCCESS);
	for (int p = 0; p < all; p++)
		for (int i = 0; i < n; i++)
			CHECK(in[p * n + i] == value(p, me * n + i));
	for (int p = 0; p < all; p++) { /* rank p gets p times n from each */
		sent[p] = counts[p];
		at[p] = 0;
		counts[p] = me * n;
		displs[p] = p * counts[p];
	}
	free(out);
	out = numbers(me, n * all);
	CHECK(MPI_Alltoallv(out, sent, at, MPI_INT, in, counts, displs, MPI_INT, comm) == MPI_SUCCESS);
	for (int p = 0; p < all; p++)
		CHECK(are(in + displs[p], p, counts[p], 1));
	CHECK(MPI_Barrier(comm) == MPI_SUCCESS);
	free(mine);
	free(counts);
	free(out);
	free(in);
}

static void reductions(MPI_Comm comm, int n)
{
	struct { double value; int rank; } pair, least;
	int me, all;
	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	int ranks = all * (all - 1) / 2; /* their sum */
	int *out = numbers(me, n * all), *in = calloc((size_t)(n * all), sizeof *in);
	double real = me * 0.5, greatest = -1;
	long bits = 1L << me, set = 0;
	bool yes = me == all - 1, any = false;
	MPI_Request r;
	for (int root = 0; root < all; root++) {
		CHECK(MPI_Reduce(out, in, n, MPI_INT, MPI_SUM, root, comm) == MPI_SUCCESS);
		for (int i = 0; i < n && me == root; i++)
			CHECK(in[i] == ranks * 1000 + all * (i % 1000));
	}
	CHECK(MPI_Allreduce(out, in, n, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && in[n - 1] == ranks * 1000 + all * ((n - 1) % 1000));
	CHECK(MPI_Allreduce(&real, &greatest, 1, MPI_DOUBLE, MPI_MAX, comm) == MPI_SUCCESS && greatest == (all - 1) * 0.5);
	CHECK(MPI_Allreduce(&bits, &set, 1, MPI_LONG, MPI_BXOR, comm) == MPI_SUCCESS && set == (1L << all) - 1);
	CHECK(MPI_Allreduce(&yes, &any, 1, MPI_C_BOOL, MPI_LOR, comm) == MPI_SUCCESS && any);
	pair.value = -(me % 2);
	pair.rank = me;
	CHECK(MPI_Allreduce(&pair, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm) == MPI_SUCCESS);
	CHECK(all == 1 || (least.value == -1 && least.rank == 1));
	CHECK(MPI_Reduce_scatter_block(out, in, n, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
	for (int i = 0; i < n; i++)
		CHECK(in[i] == ranks * 1000 + all * ((me * n + i) % 1000));
	int *blocks = calloc((size_t)all, sizeof *blocks); /* the last rank gets 2 n, the first none */
	for (int p = 0; p < all; p++)
		blocks[p] = ((p > 0) + (p == all - 1)) * n;
	CHECK(all == 1 || MPI_Reduce_scatter(out, in, blocks, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
	for (int i = 0; i < blocks[me] && all > 1; i++)
		CHECK(in[i] == ranks * 1000 + all * (((me - 1) * n + i) % 1000));
	free(blocks);
	CHECK(MPI_Scan(out, in, n, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
	CHECK(in[n - 1] == me * (me + 1) / 2 * 1000 + (me + 1) * ((n - 1) % 1000));
	CHECK(MPI_Exscan(out, in, n, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
	CHECK(me == 0 || in[n - 1] == me * (me - 1) / 2 * 1000 + me * ((n - 1) % 1000));
	CHECK(MPI_Iallreduce(out, in, n, MPI_INT, MPI_SUM, comm, &r) == MPI_SUCCESS && MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	CHECK(in[n - 1] == ranks * 1000 + all * ((n - 1) % 1000));
	free(out);
	free(in);
}

static void everything(MPI_Comm comm, int n)
{
	messages(comm, n);
	moves(comm, n);
	reductions(comm, n);
}

static void communicators(void)
{
	MPI_Comm copy, part;
	CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &copy) == MPI_SUCCESS);
	everything(copy, 10);
	CHECK(MPI_Comm_split(copy, rank % 3 == 0, -rank, &part) == MPI_SUCCESS);
	everything(part, 100);
	CHECK(MPI_Comm_free(&part) == MPI_SUCCESS);
	CHECK(MPI_Comm_split(copy, rank == 0 ? MPI_UNDEFINED : 1, 0, &part) == MPI_SUCCESS && (part == MPI_COMM_NULL) == (rank == 0));
	if (rank > 0)
		MPI_Comm_free(&part);
	int periodic = 1, out[2] = {2 * rank, 2 * rank + 1}, in[2], left = (rank + size - 1) % size, right = (rank + 1) % size;
	CHECK(MPI_Cart_create(copy, 1, &size, &periodic, 0, &part) == MPI_SUCCESS);
	CHECK(MPI_Neighbor_allgather(&rank, 1, MPI_INT, in, 1, MPI_INT, part) == MPI_SUCCESS && in[0] == left && in[1] == right);
	CHECK(MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, part) == MPI_SUCCESS && in[0] + in[1] == 2 * left + 1 + 2 * right);
	CHECK(MPI_Comm_free(&part) == MPI_SUCCESS);
	CHECK(MPI_Comm_free(&copy) == MPI_SUCCESS);
}

/* class is the class of a code. */
static int class(int code)
{
	MPI_Error_class(code, &code);
	return code;
}

/* A receive that is too short fails, and harms nothing that follows. */
static void errors(void)
{
	int two[2] = {rank, rank}, one = -1;
	MPI_Request r;
	MPI_Isend(two, 2, MPI_INT, (rank + 1) % size, 20, MPI_COMM_WORLD, &r);
	CHECK(class(MPI_Recv(&one, 1, MPI_INT, (rank + size - 1) % size, 20, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE);
	CHECK(MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* exchange passes four elements on. */
static int exchange(MPI_Datatype out, MPI_Datatype in, int tag)
{
	double _Complex from[4] = {0}, to[4];
	return class(MPI_Sendrecv(from, 4, out, (rank + 1) % size, tag, to, 4, in, (rank + size - 1) % size, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void types(void)
{
	MPI_Datatype all[] = {MPI_CHAR, MPI_BYTE, MPI_UNSIGNED_CHAR, MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_UNSIGNED, MPI_LONG, MPI_LONG_LONG, MPI_INT64_T,
		MPI_UNSIGNED_LONG, MPI_AINT, MPI_FLOAT, MPI_DOUBLE, MPI_C_BOOL, MPI_C_DOUBLE_COMPLEX, MPI_INTEGER, MPI_DOUBLE_PRECISION};
	for (int i = 0; i < (int)(sizeof all / sizeof all[0]); i++)
		CHECK(exchange(all[i], all[i], 30 + i) == MPI_SUCCESS);
	CHECK(exchange(MPI_FLOAT, MPI_INT, 60) == MPI_ERR_TYPE);
	CHECK(exchange(MPI_UNSIGNED, MPI_INT, 61) == MPI_ERR_TYPE);
	MPI_Comm copy; /* in which the ranks are in different calls */
	int n = 0;
	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	CHECK(MPI_Bcast(&n, 1, MPI_INT, 0, copy) != MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int n = 1; n <= 100000; n *= 100)
		everything(MPI_COMM_WORLD, n);
	communicators();
	errors();
	if (argc > 1)
		types();
	return finish();
}
