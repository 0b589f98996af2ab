/* Persistent collective calls. */

#include "check.h"

static __thread int is_program; /* this thread is the program's own */

static int *numbers(int n) { return calloc((size_t)n + 1, sizeof(int)); }

static int is_empty(const MPI_Status *s)
{
	int n;
	MPI_Get_count(s, MPI_INT, &n);
	return s->MPI_SOURCE == MPI_ANY_SOURCE && s->MPI_TAG == MPI_ANY_TAG && n == 0;
}

/* What is inactive completes at once and stays. */
static void inactive(MPI_Request *r)
{
	int flag = 0, i = 0;
	MPI_Status s;
	MPI_Request kept = *r;
	MPI_Wait(r, &s);
	CHECK(*r == kept && is_empty(&s));
	MPI_Test(r, &flag, &s);
	CHECK(*r == kept && flag && is_empty(&s));
	flag = 0, MPI_Testany(1, r, &i, &flag, &s);
	CHECK(flag && i == MPI_UNDEFINED && is_empty(&s));
	MPI_Waitsome(1, r, &flag, &i, MPI_STATUSES_IGNORE);
	CHECK(flag == MPI_UNDEFINED && *r == kept);
}

enum { CALLS = 14, MESSAGES = 2 };

/* All calls at a time, thrice, started in another order by each rank. */
static void moves(void)
{
	int n = size, total = n * (n + 1) / 2, root = n - 1, to = (rank + 1) % n, from = (rank + n - 1) % n;
	int b = 0, one = 0, x = 0, gotten = 0, sum = 0, most = 0, up = 0, before = -7, block = 0;
	int *counts = numbers(n), *displs = numbers(n), *ones = numbers(n), *order = numbers(n), *bytes = numbers(n);
	int *gathered = numbers(n), *every = numbers(n), *own = numbers(n), *out = numbers(n), *in = numbers(n), *v = numbers(n), *w = numbers(n);
	int *unequal = numbers(total), *mine = numbers(n), *back = numbers(n), *vector = numbers(n), *parts = numbers(n);
	MPI_Datatype *types = malloc(sizeof *types * (size_t)n);
	MPI_Request r[CALLS + MESSAGES], calls[6];
	for (int i = 0, at = 0; i < n; at += counts[i++])
		counts[i] = i + 1, displs[i] = at, ones[i] = 1, order[i] = i, bytes[i] = 4 * i, types[i] = MPI_INT;
	MPI_Bcast_init(&b, 1, MPI_INT, root, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]);
	MPI_Gather_init(&x, 1, MPI_INT, gathered, 1, MPI_INT, root, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]);
	MPI_Allgather_init(&x, 1, MPI_INT, every, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r[2]);
	MPI_Allgather_init(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, own, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r[3]);
	MPI_Scatter_init(out, 1, MPI_INT, &one, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &r[4]);
	MPI_Alltoall_init(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r[5]);
	MPI_Alltoallv_init(out, ones, order, MPI_INT, v, ones, order, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r[6]);
	MPI_Alltoallw_init(out, ones, bytes, types, w, ones, bytes, types, MPI_COMM_WORLD, MPI_INFO_NULL, &r[7]);
	MPI_Allgatherv_init(mine, rank + 1, MPI_INT, unequal, counts, displs, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r[8]);
	MPI_Reduce_init(&x, &sum, 1, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, MPI_INFO_NULL, &r[9]);
	MPI_Allreduce_init(&x, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &r[10]);
	MPI_Scan_init(&x, &up, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r[11]);
	MPI_Exscan_init(&x, &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r[12]);
	MPI_Reduce_scatter_block_init(vector, &block, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r[13]);
	MPI_Send_init(&x, 1, MPI_INT, to, 3, MPI_COMM_WORLD, &r[14]);
	MPI_Recv_init(&gotten, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &r[15]);
	MPI_Reduce_scatter_init(MPI_IN_PLACE, parts, ones, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &calls[0]);
	MPI_Gatherv_init(mine, rank + 1, MPI_INT, unequal, counts, displs, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &calls[1]);
	MPI_Scatterv_init(unequal, counts, displs, MPI_INT, back, rank + 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &calls[2]);
	MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &calls[3]);
	for (int i = 0; i < CALLS + MESSAGES; i++)
		inactive(&r[i]);
	for (int round = 0; round < 3; round++) {
		MPI_Request kept = r[0];
		int some = 100 * round, first = (rank + round) % CALLS;
		b = rank == root ? some + 1 : 0, x = some + rank, own[rank] = some + rank;
		memset(gathered, 0, sizeof(int) * (size_t)n), memset(every, 0, sizeof(int) * (size_t)n), memset(unequal, 0, sizeof(int) * (size_t)total);
		for (int i = 0; i < n; i++)
			out[i] = some + 10 * rank + i, vector[i] = some + i, parts[i] = i + round;
		for (int i = 0; i <= rank; i++)
			mine[i] = some + rank;
		MPI_Startall(CALLS - first, r + first);
		MPI_Startall(first, r);
		MPI_Startall(MESSAGES, r + CALLS);
		MPI_Waitall(CALLS + MESSAGES, r, MPI_STATUSES_IGNORE);
		CHECK(r[0] == kept && b == some + 1 && one == some + rank && gotten == some + from);
		for (int i = 0; i < n; i++) {
			CHECK((rank != root || gathered[i] == some + i) && every[i] == some + i && own[i] == some + i);
			CHECK(in[i] == some + 10 * i + rank && v[i] == in[i] && w[i] == in[i]);
			CHECK(unequal[displs[i]] == some + i && unequal[displs[i] + i] == some + i);
		}
		CHECK((rank != root || sum == n * some + n * (n - 1) / 2) && most == some + n - 1);
		CHECK(up == (rank + 1) * some + rank * (rank + 1) / 2 && before == (rank == 0 ? -7 : rank * some + rank * (rank - 1) / 2));
		CHECK(block == n * (some + rank));

		memset(unequal, 0, sizeof(int) * (size_t)total);
		MPI_Start(&calls[0]), MPI_Start(&calls[1]);
		MPI_Waitall(2, calls, MPI_STATUSES_IGNORE);
		CHECK(parts[0] == n * (rank + round) && (rank != 0 || unequal[total - 1] == some + n - 1));
		MPI_Start(&calls[2]), MPI_Wait(&calls[2], MPI_STATUS_IGNORE);
		CHECK(back[0] == some + rank && back[rank] == some + rank);
		MPI_Start(&calls[3]), MPI_Wait(&calls[3], MPI_STATUS_IGNORE);
	}
	for (int i = 0; i < CALLS + MESSAGES; i++) {
		inactive(&r[i]);
		MPI_Request_free(&r[i]);
		CHECK(r[i] == MPI_REQUEST_NULL);
	}
	for (int i = 0; i < 4; i++)
		MPI_Request_free(&calls[i]);
	free(counts), free(displs), free(ones), free(order), free(bytes), free(gathered), free(every), free(own), free(out), free(in);
	free(v), free(w), free(unequal), free(mine), free(back), free(vector), free(parts), free(types);
}

/* b = the affine function a after b, modulo 97, of factor and summand: which does not commute. */
static void after(void *in, void *inout, int *n, MPI_Datatype *type)
{
	int *a = in, *b = inout, bytes;
	CHECK(is_program);
	MPI_Type_size(*type, &bytes);
	CHECK(bytes == 2 * sizeof(int));
	for (int i = 0; i < *n; i++, a += 2, b += 2)
		b[1] = (b[0] * a[1] + b[1]) % 97, b[0] = b[0] * a[0] % 97;
}

/* An operation may be freed while a request uses it. */
static void callbacks(void)
{
	int mine[2], all[2], up[2], done;
	MPI_Op op;
	MPI_Datatype pair;
	MPI_Request r[2];
	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	MPI_Op_create(after, 0, &op);
	MPI_Allreduce_init(mine, all, 1, pair, op, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]);
	MPI_Scan_init(mine, up, 1, pair, op, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]);
	MPI_Op_free(&op);
	for (int round = 0; round < 3; round++) {
		int f[2] = {1, 0};
		mine[0] = 2 + rank, mine[1] = rank + round;
		MPI_Startall(2, r);
		done = 0;
		while (!done)
			MPI_Testall(2, r, &done, MPI_STATUSES_IGNORE);
		for (int i = 0; i < size; i++) {
			f[1] = ((2 + i) * f[1] + i + round) % 97, f[0] = (2 + i) * f[0] % 97;
			CHECK(i != rank || (up[0] == f[0] && up[1] == f[1]));
		}
		CHECK(all[0] == f[0] && all[1] == f[1]);
	}
	MPI_Request_free(&r[0]), MPI_Request_free(&r[1]);
	MPI_Type_free(&pair);
}

static int class_of(int code)
{
	int class;
	MPI_Error_class(code, &class);
	return class;
}

static void mistakes(void)
{
	int x = rank;
	MPI_Request r, kept, other;
	MPI_Errhandler old;
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &old);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &r);
	kept = r;
	CHECK(class_of(MPI_Cancel(&r)) == MPI_ERR_REQUEST);
	MPI_Start(&r);
	CHECK(MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS && r == kept);
	CHECK(MPI_Request_free(&r) == MPI_SUCCESS && r == MPI_REQUEST_NULL);
	CHECK(class_of(MPI_Start(&r)) == MPI_ERR_REQUEST);
	MPI_Ibarrier(MPI_COMM_WORLD, &other);
	CHECK(class_of(MPI_Start(&other)) == MPI_ERR_REQUEST);
	MPI_Wait(&other, MPI_STATUS_IGNORE);
	CHECK(class_of(MPI_Bcast_init(&x, -1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &r)) == MPI_ERR_COUNT);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);

	/* A call is neither started again nor freed before it is complete: the last process comes only then. */
	if (size > 1) {
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
		MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &r);
		if (rank != 0) {
			MPI_Start(&r);
			CHECK(class_of(MPI_Start(&r)) == MPI_ERR_REQUEST);
			CHECK(class_of(MPI_Request_free(&r)) == MPI_ERR_REQUEST && r != MPI_REQUEST_NULL);
			CHECK(class_of(MPI_Cancel(&r)) == MPI_ERR_REQUEST);
			MPI_Send(&x, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
		} else {
			for (int i = 1; i < size; i++)
				MPI_Recv(&x, 1, MPI_INT, i, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Start(&r);
		}
		CHECK(MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS);
		MPI_Request_free(&r);
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
	}
}

int main(int argc, char **argv)
{
	is_program = 1;
	begin(&argc, &argv);
	moves();
	callbacks();
	mistakes();
	return finish();
}
