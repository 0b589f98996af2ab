/* Nonblocking collective calls. */

#include "check.h"

static __thread int is_program; /* this thread is the program's own */

static int *numbers(int n) { return calloc((size_t)n + 1, sizeof(int)); }

/* No process leaves a barrier before all have come. */
static void barriers(void)
{
	MPI_Request r;
	int over = 0, x = 0;
	if (rank == 0) {
		for (int i = 1; i < size; i++)
			MPI_Recv(&x, 1, MPI_INT, i, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Ibarrier(MPI_COMM_WORLD, &r);
	} else {
		MPI_Ibarrier(MPI_COMM_WORLD, &r);
		MPI_Test(&r, &over, MPI_STATUS_IGNORE);
		CHECK(!over && r != MPI_REQUEST_NULL);
		MPI_Send(&x, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
	}
	while (!over)
		MPI_Test(&r, &over, MPI_STATUS_IGNORE);
	CHECK(r == MPI_REQUEST_NULL);
}

/* Many calls are pending at a time, and complete in any order, together with messages. */
static void moves(void)
{
	int n = size, root = size - 1, to = (rank + 1) % size, from = (rank + size - 1) % size;
	int b[3] = {0}, x[2] = {rank, -rank}, one = 0, got = -1;
	int *gathered = numbers(2 * n), *all = numbers(2 * n), *mine = numbers(n), *theirs = numbers(n), *own = numbers(n);
	MPI_Request r[9];
	MPI_Status s[9];
	if (rank == root)
		b[0] = 7, b[2] = 9;
	for (int i = 0; i < n; i++)
		mine[i] = 100 * rank + i;
	own[rank] = rank + 1;
	MPI_Irecv(&got, 1, MPI_INT, from, 5, MPI_COMM_WORLD, &r[0]);
	MPI_Ibcast(b, 3, MPI_INT, root, MPI_COMM_WORLD, &r[1]);
	MPI_Igather(x, 2, MPI_INT, gathered, 2, MPI_INT, root, MPI_COMM_WORLD, &r[2]);
	MPI_Iallgather(x, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD, &r[3]);
	MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, own, 1, MPI_INT, MPI_COMM_WORLD, &r[4]);
	MPI_Ialltoall(mine, 1, MPI_INT, theirs, 1, MPI_INT, MPI_COMM_WORLD, &r[5]);
	MPI_Iscatter(mine, 1, MPI_INT, &one, 1, MPI_INT, 0, MPI_COMM_WORLD, &r[6]);
	r[7] = MPI_REQUEST_NULL;
	MPI_Isend(&rank, 1, MPI_INT, to, 5, MPI_COMM_WORLD, &r[8]);
	MPI_Wait(&r[6], MPI_STATUS_IGNORE);
	CHECK(one == rank);
	s[7].MPI_TAG = 0;
	MPI_Waitall(9, r, s);
	for (int i = 0; i < 9; i++)
		CHECK(r[i] == MPI_REQUEST_NULL);
	CHECK(got == from && s[0].MPI_SOURCE == from && s[0].MPI_TAG == 5 && s[7].MPI_TAG == MPI_ANY_TAG);
	CHECK(b[0] == 7 && b[1] == 0 && b[2] == 9);
	for (int i = 0; i < n; i++) {
		CHECK(rank != root || (gathered[2 * i] == i && gathered[2 * i + 1] == -i));
		CHECK(all[2 * i] == i && all[2 * i + 1] == -i);
		CHECK(own[i] == i + 1 && theirs[i] == 100 * i + rank);
	}
	MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mine, 1, MPI_INT, MPI_COMM_WORLD, &r[0]);
	MPI_Igather(rank == root ? MPI_IN_PLACE : (void *)x, 2, MPI_INT, gathered, 2, MPI_INT, root, MPI_COMM_WORLD, &r[1]);
	MPI_Iscatter(own, 1, MPI_INT, rank == 0 ? MPI_IN_PLACE : (void *)&one, 1, MPI_INT, 0, MPI_COMM_WORLD, &r[2]);
	for (int left = 3, i; left; left--) {
		MPI_Waitany(3, r, &i, MPI_STATUS_IGNORE);
		CHECK(i >= 0 && i < 3 && r[i] == MPI_REQUEST_NULL);
	}
	CHECK(mine[0] == rank && mine[size - 1] == 100 * (size - 1) + rank && one == (rank == 0 ? 0 : rank + 1));
	free(gathered), free(all), free(mine), free(theirs), free(own);
}

/* Rank r sends r+1 numbers. The arrays of counts are the program's again once a call has begun. */
static void unequal(void)
{
	int n = size, total = n * (n + 1) / 2, done, indices[6];
	int *counts = numbers(n), *displs = numbers(n), *all = numbers(total), *every = numbers(total), *own = numbers(total);
	int *mine = numbers(n), *back = numbers(n), *ones = numbers(n), *order = numbers(n), *bytes = numbers(n), *a = numbers(n), *b = numbers(n), *c = numbers(n);
	MPI_Datatype *types = malloc(sizeof *types * (size_t)n);
	MPI_Request r[6];
	for (int i = 0, at = 0; i < n; at += counts[i++])
		counts[i] = i + 1, displs[i] = at;
	for (int i = 0; i < n; i++)
		ones[i] = 1, order[i] = i, bytes[i] = 4 * i, types[i] = MPI_INT, c[i] = 10 * rank + i;
	for (int i = 0; i <= rank; i++)
		mine[i] = rank, own[displs[rank] + i] = rank;
	MPI_Igatherv(mine, rank + 1, MPI_INT, all, counts, displs, MPI_INT, 0, MPI_COMM_WORLD, &r[0]);
	MPI_Iallgatherv(mine, rank + 1, MPI_INT, every, counts, displs, MPI_INT, MPI_COMM_WORLD, &r[1]);
	MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_INT, own, counts, displs, MPI_INT, MPI_COMM_WORLD, &r[2]);
	MPI_Ialltoallv(c, ones, order, MPI_INT, a, ones, order, MPI_INT, MPI_COMM_WORLD, &r[3]);
	MPI_Ialltoallw(c, ones, bytes, types, b, ones, bytes, types, MPI_COMM_WORLD, &r[4]);
	r[5] = MPI_REQUEST_NULL;
	memset(counts, -1, sizeof(int) * (size_t)n), memset(displs, -1, sizeof(int) * (size_t)n);
	memset(ones, -1, sizeof(int) * (size_t)n), memset(order, -1, sizeof(int) * (size_t)n), memset(bytes, -1, sizeof(int) * (size_t)n);
	for (int i = 0; i < n; i++)
		types[i] = MPI_DATATYPE_NULL;
	for (int left = 5; left; left -= done) {
		MPI_Waitsome(6, r, &done, indices, MPI_STATUSES_IGNORE);
		CHECK(done > 0 && done <= left);
	}
	MPI_Waitsome(6, r, &done, indices, MPI_STATUSES_IGNORE);
	CHECK(done == MPI_UNDEFINED);
	for (int i = 0, at = 0; i < n; at += ++i) {
		CHECK(rank != 0 || (all[at] == i && all[at + i] == i));
		CHECK(every[at] == i && every[at + i] == i && own[at] == i && own[at + i] == i);
		CHECK(a[i] == 10 * i + rank && b[i] == 10 * i + rank);
		counts[i] = i + 1, displs[i] = at;
	}
	MPI_Iscatterv(all, counts, displs, MPI_INT, back, rank + 1, MPI_INT, 0, MPI_COMM_WORLD, &r[0]);
	done = 0;
	while (!done)
		MPI_Testall(2, (MPI_Request[]){r[0], MPI_REQUEST_NULL}, &done, MPI_STATUSES_IGNORE);
	CHECK(back[0] == rank && back[rank] == rank);
	free(counts), free(displs), free(all), free(every), free(own), free(mine), free(back), free(ones), free(order), free(bytes);
	free(a), free(b), free(c), free(types);
}

/* Counts and displacements of 64 bits. */
#if MPI_VERSION >= 4
static void large(void)
{
	int n = size, *all = numbers(n), *in = numbers(n), *out = numbers(n);
	MPI_Count *ones = calloc((size_t)n, sizeof *ones);
	MPI_Aint *order = calloc((size_t)n, sizeof *order), *bytes = calloc((size_t)n, sizeof *bytes);
	MPI_Datatype *types = malloc(sizeof *types * (size_t)n);
	int block = -1;
	MPI_Request r[4];
	for (int i = 0; i < n; i++)
		ones[i] = 1, order[i] = n - 1 - i, bytes[i] = 4 * i, types[i] = MPI_INT, out[i] = 10 * rank + i;
	MPI_Iallgatherv_c(&rank, 1, MPI_INT, all, ones, order, MPI_INT, MPI_COMM_WORLD, &r[0]);
	MPI_Ialltoallw_c(out, ones, bytes, types, in, ones, bytes, types, MPI_COMM_WORLD, &r[1]);
	MPI_Ireduce_scatter_c(out, &block, ones, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[2]);
	MPI_Bcast_init_c(&n, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &r[3]);
	MPI_Start(&r[3]);
	MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
	MPI_Request_free(&r[3]);
	for (int i = 0; i < n; i++)
		CHECK(all[i] == n - 1 - i && in[i] == 10 * i + rank);
	CHECK(block == 10 * (n * (n - 1) / 2) + n * rank);
	free(all), free(in), free(out), free(ones), free(order), free(bytes), free(types);
}
#else
static void large(void) {}
#endif

/* Types may be freed while a call uses them; it leaves gaps alone, and all memory once it is complete. */
static void derived(void)
{
	int root = size / 2, grid[6] = {0}, line[3] = {1, 2, 3}, complete = 0;
	MPI_Datatype column;
	MPI_Request r;
	MPI_Type_vector(3, 1, 2, MPI_INT, &column);
	MPI_Type_commit(&column);
	if (rank == root)
		MPI_Ibcast(line, 3, MPI_INT, root, MPI_COMM_WORLD, &r);
	else
		MPI_Ibcast(grid, 1, column, root, MPI_COMM_WORLD, &r);
	MPI_Type_free(&column);
	while (!complete)
		MPI_Request_get_status(r, &complete, MPI_STATUS_IGNORE);
	CHECK(r != MPI_REQUEST_NULL);
	for (int i = 0; i < 3 && rank != root; i++)
		CHECK(grid[2 * i] == i + 1 && grid[2 * i + 1] == 0);
	grid[0] = line[0] = -5;
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	CHECK(grid[0] == -5 && line[0] == -5);
}

static void reductions(void)
{
	int n = size, sum = n * (n - 1) / 2, x = rank, y = -1, z = -1, up = -7, before = -7, block = -1;
	int *all = numbers(n), *same = numbers(n), *counts = numbers(n);
	struct { double value; int index; } least = {rank == 1 % n ? -2 : 5, rank};
	MPI_Request r[8];
	for (int i = 0; i < n; i++)
		all[i] = same[i] = i, counts[i] = 1;
	MPI_Iallreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[0]);
	MPI_Ireduce(&x, rank == 0 ? &z : NULL, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &r[1]);
	MPI_Iscan(&x, &up, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[2]);
	MPI_Iexscan(&x, rank ? &before : NULL, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[3]);
	MPI_Ireduce_scatter_block(all, &block, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[4]);
	MPI_Ireduce_scatter(MPI_IN_PLACE, same, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[5]);
	MPI_Iallreduce(MPI_IN_PLACE, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD, &r[6]);
	MPI_Iallreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[7]);
	MPI_Waitall(8, r, MPI_STATUSES_IGNORE);
	CHECK(y == sum && (rank != 0 || z == sum) && up == rank * (rank + 1) / 2);
	CHECK(before == (rank == 0 ? -7 : rank * (rank - 1) / 2));
	CHECK(block == rank * n && same[0] == rank * n && least.value == -2 && least.index == 1 % n);
	free(all), free(same), free(counts);
}

/* An operation that does not commute joins lists of digits: n * LONG + digits stands for n of them. It may rely on its
   thread's own variables, so it is called on a thread of the program's that is in a call of MPI. */
#define LONG 1000000000L

static int calls;

static void append(void *in, void *inout, int *n, MPI_Datatype *type)
{
	long *a = in, *b = inout;
	MPI_Aint lb, extent;
	CHECK(is_program);
	MPI_Type_get_extent(*type, &lb, &extent);
	for (int i = 0; i < *n; i++) {
		long digits = a[0] % LONG;
		for (long j = 0; j < b[0] / LONG; j++)
			digits *= 10;
		b[0] = (a[0] / LONG + b[0] / LONG) * LONG + digits + b[0] % LONG;
		a = (long *)((char *)a + extent), b = (long *)((char *)b + extent);
	}
	calls++;
}

static void callbacks(void)
{
	long mine[4] = {LONG + rank + 1, 1, LONG + rank + 1, 2}, all[4] = {0, 3, 0, 4}, up[1] = {LONG + rank + 1}, back[2] = {0}, digits = 0;
	int done = 0, x = rank;
	MPI_Op op;
	MPI_Datatype gap;
	MPI_Request r[3];
	MPI_Comm same;
	for (int i = 0; i < size; i++)
		digits = digits * 10 + i + 1;
	MPI_Type_create_resized(MPI_LONG, 0, 2 * sizeof(long), &gap);
	MPI_Type_commit(&gap);
	MPI_Op_create(append, 0, &op);
	MPI_Iallreduce(mine, all, 2, gap, op, MPI_COMM_WORLD, &r[0]);
	MPI_Iscan(MPI_IN_PLACE, up, 1, MPI_LONG, op, MPI_COMM_WORLD, &r[1]);
	MPI_Irecv(&x, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &r[2]);
	MPI_Send(&size, 1, MPI_INT, rank, 9, MPI_COMM_WORLD);
	MPI_Op_free(&op);
	CHECK(op == MPI_OP_NULL);
	MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
	CHECK(all[0] == size * LONG + digits && all[2] == all[0] && all[1] == 3 && all[3] == 4 && x == size);
	CHECK(up[0] / LONG == rank + 1 && up[0] % 10 == rank + 1);
	MPI_Type_free(&gap);
	MPI_Allreduce(MPI_IN_PLACE, &calls, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(calls >= 2 * (size - 1));

	MPI_Op_create(append, 0, &op);
	MPI_Iallreduce(mine, back, 1, MPI_LONG, op, MPI_COMM_WORLD, &r[0]);
	while (!done)
		MPI_Test(&r[0], &done, MPI_STATUS_IGNORE);
	CHECK(back[0] == size * LONG + digits);

	/* Those of one half wait for the result first. */
	MPI_Iallreduce(mine, back + 1, 1, MPI_LONG, op, MPI_COMM_WORLD, &r[0]);
	if (rank % 2 == 0 && rank + 1 < size)
		MPI_Recv(&x, 1, MPI_INT, rank + 1, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&r[0], MPI_STATUS_IGNORE);
	if (rank % 2 == 1)
		MPI_Send(&x, 1, MPI_INT, rank - 1, 10, MPI_COMM_WORLD);
	CHECK(back[1] == back[0]);
	back[0] = back[1] = 0;
	MPI_Ireduce(mine, back, 1, MPI_LONG, op, size - 1, MPI_COMM_WORLD, &r[0]);
	if (rank % 2 == 0)
		MPI_Comm_dup(MPI_COMM_WORLD, &same);
	MPI_Wait(&r[0], MPI_STATUS_IGNORE);
	if (rank % 2 == 1)
		MPI_Comm_dup(MPI_COMM_WORLD, &same);
	CHECK(rank != size - 1 || back[0] == size * LONG + digits);
	MPI_Allreduce(mine, back + 1, 1, MPI_LONG, op, same);
	CHECK(back[1] == size * LONG + digits);
	MPI_Comm_free(&same);
	MPI_Op_free(&op);
}

static int reported; /* by the error handler */

static void report(MPI_Comm *comm, int *error, ...)
{
	CHECK(is_program && *comm == MPI_COMM_WORLD);
	MPI_Error_class(*error, &reported);
}

/* What must not be done with the request of a collective call; it stays valid. */
static void mistakes(void)
{
	int x = rank, class = 0;
	long mine[1] = {LONG + 1}, all[1] = {0};
	MPI_Request r, kept;
	MPI_Errhandler handler, old;
	MPI_Op op;
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &old);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Ibcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD, &r);
	kept = r;
	MPI_Error_class(MPI_Request_free(&r), &class);
	CHECK(class == MPI_ERR_REQUEST && r == kept);
	MPI_Error_class(MPI_Cancel(&r), &class);
	CHECK(class == MPI_ERR_REQUEST && r == kept);
	CHECK(MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS && x == 0);
	MPI_Error_class(MPI_Ibcast(&x, -1, MPI_INT, 0, MPI_COMM_WORLD, &r), &class);
	CHECK(class == MPI_ERR_COUNT);
	MPI_Error_class(MPI_Iallreduce(&x, &x, 1, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD, &r), &class);
	CHECK(class == MPI_ERR_TYPE);
	MPI_Error_class(MPI_Iallreduce(&x, &x, 1, MPI_BYTE, MPI_SUM, MPI_COMM_WORLD, &r), &class);
	CHECK(class == MPI_ERR_OP);

	/* Error handlers, too, are called on the program's thread, while an operation waits for it. */
	MPI_Comm_create_errhandler(report, &handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	MPI_Op_create(append, 0, &op);
	MPI_Iallreduce(mine, all, 1, MPI_LONG, op, MPI_COMM_WORLD, &r);
	MPI_Send(&x, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
	CHECK(reported == MPI_ERR_RANK);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	CHECK(all[0] / LONG == size);
	MPI_Op_free(&op);
	MPI_Errhandler_free(&handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
}

int main(int argc, char **argv)
{
	is_program = 1;
	begin(&argc, &argv);
	barriers();
	moves();
	unequal();
	large();
	derived();
	reductions();
	callbacks();
	mistakes();
	return finish();
}
