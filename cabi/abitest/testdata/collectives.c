/* Blocking collective calls, operations and communicators. */

#include "check.h"

static int *numbers(int n) { return calloc((size_t)n + 1, sizeof(int)); }

static void moves(void)
{
	int *all = numbers(size * 2), *mine = numbers(size), x[2] = {rank, -rank}, root = size - 1;
	double d[3] = {0};
	if (rank == root)
		d[0] = 1.5, d[2] = 2.5;
	MPI_Bcast(d, 3, MPI_DOUBLE, root, MPI_COMM_WORLD);
	CHECK(d[0] == 1.5 && d[2] == 2.5);

	MPI_Gather(x, 2, MPI_INT, all, 2, MPI_INT, root, MPI_COMM_WORLD);
	for (int i = 0; i < size && rank == root; i++)
		CHECK(all[2 * i] == i && all[2 * i + 1] == -i);
	MPI_Allgather(x, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		CHECK(all[2 * i] == i && all[2 * i + 1] == -i);

	memset(all, 0, sizeof(int) * 2 * (size_t)size);
	all[rank] = rank + 1;
	MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		CHECK(all[i] == i + 1);

	x[0] = 1;
	if (rank == 0)
		MPI_Scatter(all, 1, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
	else
		MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, x, 1, MPI_INT, 0, MPI_COMM_WORLD);
	CHECK(x[0] == rank + 1);

	for (int i = 0; i < size; i++)
		mine[i] = rank * 100 + i;
	MPI_Alltoall(mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		CHECK(all[i] == i * 100 + rank);
	MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mine, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		CHECK(mine[i] == i * 100 + rank);
	free(all), free(mine);
}

/* Rank r sends r+1 numbers. */
static void unequal(void)
{
	int total = size * (size + 1) / 2;
	int *counts = numbers(size), *displs = numbers(size), *all = numbers(total), *mine = numbers(size), *back = numbers(size);
	for (int i = 0, at = 0; i < size; at += counts[i++])
		counts[i] = i + 1, displs[i] = at;
	for (int i = 0; i <= rank; i++)
		mine[i] = rank;
	MPI_Gatherv(mine, rank + 1, MPI_INT, all, counts, displs, MPI_INT, 0, MPI_COMM_WORLD);
	for (int i = 0; i < size && rank == 0; i++)
		CHECK(all[displs[i]] == i && all[displs[i] + i] == i);
	MPI_Scatterv(all, counts, displs, MPI_INT, back, rank + 1, MPI_INT, 0, MPI_COMM_WORLD);
	CHECK(back[0] == rank && back[rank] == rank);
	memset(all, 0, sizeof(int) * (size_t)total);
	MPI_Allgatherv(mine, rank + 1, MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD);
	CHECK(all[total - 1] == size - 1 && all[0] == 0);

	int *ones = numbers(size), *order = numbers(size), *bytes = numbers(size);
	MPI_Datatype *types = malloc(sizeof *types * (size_t)size);
	for (int i = 0; i < size; i++)
		ones[i] = 1, order[i] = i, bytes[i] = 4 * i, types[i] = MPI_INT, mine[i] = 10 * rank + i;
	MPI_Alltoallv(mine, ones, order, MPI_INT, back, ones, order, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		CHECK(back[i] == 10 * i + rank);
	memset(back, 0, sizeof(int) * (size_t)size);
	MPI_Alltoallw(mine, ones, bytes, types, back, ones, bytes, types, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		CHECK(back[i] == 10 * i + rank);
	free(counts), free(displs), free(all), free(mine), free(back), free(ones), free(order), free(bytes), free(types);
}

/* An operation that does not commute joins lists of digits: n * LONG + digits stands for n of them. */
#define LONG 1000000000L

static void append(void *in, void *inout, int *n, MPI_Datatype *type)
{
	long *a = in, *b = inout;
	CHECK(*type == MPI_LONG);
	for (int i = 0; i < *n; i++) {
		long digits = a[i] % LONG;
		for (long j = 0; j < b[i] / LONG; j++)
			digits *= 10;
		b[i] = (a[i] / LONG + b[i] / LONG) * LONG + digits + b[i] % LONG;
	}
}

static void callbacks(void)
{
	long mine[2] = {LONG + rank + 1, 0}, all[2] = {0}, digits = 0;
	int commutes = 1;
	MPI_Op op;
	MPI_Op_create(append, 0, &op);
	MPI_Op_commutative(op, &commutes);
	CHECK(!commutes);
	for (int i = 0; i < size; i++)
		digits = digits * 10 + i + 1;
	MPI_Allreduce(mine, all, 2, MPI_LONG, op, MPI_COMM_WORLD);
	CHECK(all[0] == size * LONG + digits && all[1] == 0);
	MPI_Scan(MPI_IN_PLACE, mine, 1, MPI_LONG, op, MPI_COMM_WORLD);
	CHECK(mine[0] / LONG == rank + 1 && mine[0] % 10 == rank + 1);
	mine[0] = LONG + 4, all[0] = LONG + 2;
	MPI_Reduce_local(mine, all, 1, MPI_LONG, op);
	CHECK(all[0] == 2 * LONG + 42);
	MPI_Op_free(&op);
	CHECK(op == MPI_OP_NULL);
}

static void reductions(void)
{
	int sum = size * (size - 1) / 2, x = rank, y = -1;
	MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(y == sum);
	double d = rank + 1, product = 1, result = 0;
	for (int i = 1; i <= size; i++)
		product *= i;
	MPI_Reduce(&d, &result, 1, MPI_DOUBLE, MPI_PROD, 0, MPI_COMM_WORLD);
	CHECK(rank != 0 || result == product);
	MPI_Allreduce(MPI_IN_PLACE, &d, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	CHECK(d == size);
	if (rank == 0)
		MPI_Reduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	else
		MPI_Reduce(&x, NULL, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	CHECK(x == (rank == 0 ? sum : rank));
	unsigned char bits = (unsigned char)(1 << (rank % 8)), any = 0;
	MPI_Allreduce(&bits, &any, 1, MPI_UNSIGNED_CHAR, MPI_BOR, MPI_COMM_WORLD);
	CHECK(any == (size >= 8 ? 255 : (1 << size) - 1));
	int yes = rank == 0 ? 7 : 3;
	MPI_Allreduce(MPI_IN_PLACE, &yes, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
	CHECK(yes == (size == 1 ? 7 : 1)); /* one process's is not touched */
	struct { double value; int index; } least = {rank == 1 % size ? -2 : 5, rank};
	MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
	CHECK(least.value == -2 && least.index == 1 % size);

	y = -7;
	MPI_Scan(&rank, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(y == rank * (rank + 1) / 2);
	y = -7;
	MPI_Exscan(&rank, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(y == (rank == 0 ? -7 : rank * (rank - 1) / 2));

	int *all = numbers(size), mine = -1;
	for (int i = 0; i < size; i++)
		all[i] = i;
	MPI_Reduce_scatter_block(all, &mine, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(mine == rank * size);
	int *counts = numbers(size);
	for (int i = 0; i < size; i++)
		counts[i] = 1;
	MPI_Reduce_scatter(MPI_IN_PLACE, all, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(all[0] == rank * size);
	free(all), free(counts);
}

static void communicators(void)
{
	MPI_Comm half, same, none;
	int r, n, result;
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	MPI_Comm_rank(half, &r);
	MPI_Comm_size(half, &n);
	CHECK(n == (size + 1 - rank % 2) / 2 && r == n - 1 - rank / 2);
	int least = rank;
	MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, half);
	CHECK(least == rank % 2);
	MPI_Comm_dup(MPI_COMM_WORLD, &same);
	MPI_Comm_compare(same, MPI_COMM_WORLD, &result);
	CHECK(result == MPI_CONGRUENT);
	MPI_Comm_compare(same, same, &result);
	CHECK(result == MPI_IDENT);
	MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 1 : MPI_UNDEFINED, 0, &none);
	CHECK((none == MPI_COMM_NULL) == (rank != 0));
	if (none != MPI_COMM_NULL)
		MPI_Comm_free(&none);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &none);
	MPI_Comm_size(none, &n);
	CHECK(n == size);
	MPI_Comm_free(&none);
	MPI_Comm_free(&half);
	MPI_Comm_free(&same);
	MPI_Comm_size(MPI_COMM_SELF, &n);
	CHECK(n == 1);
}

static void environment(void)
{
	char name[MPI_MAX_PROCESSOR_NAME], text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length, flag, version, subversion, bytes;
	double before = MPI_Wtime();
	MPI_Get_processor_name(name, &length);
	CHECK(length == (int)strlen(name) && length > 0);
	MPI_Get_library_version(text, &length);
	CHECK(strstr(text, "Isthmus") != NULL);
	MPI_Get_version(&version, &subversion);
	CHECK(version >= 4);
	MPI_Initialized(&flag);
	CHECK(flag);
	MPI_Finalized(&flag);
	CHECK(!flag);
	MPI_Type_size(MPI_LONG_DOUBLE, &bytes);
	CHECK(bytes == sizeof(long double));
	CHECK(MPI_Wtime() >= before && MPI_Wtick() > 0);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	environment();
	moves();
	unequal();
	reductions();
	callbacks();
	communicators();
	return finish();
}
