/* Derived datatypes: structs, addresses, matrices, packing, contents. */

#include "check.h"

#include <stddef.h>

struct particle {
	char kind;
	double place[3];
	int id;
};

static MPI_Datatype particle(void)
{
	const int lengths[3] = {1, 3, 1};
	const MPI_Aint places[3] = {offsetof(struct particle, kind), offsetof(struct particle, place), offsetof(struct particle, id)};
	const MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
	MPI_Datatype t;
	MPI_Aint lb, extent;
	int n = -1;
	CHECK(MPI_Type_create_struct(3, lengths, places, types, &t) == MPI_SUCCESS);
	MPI_Type_get_extent(t, &lb, &extent);
	CHECK(lb == 0 && extent == (MPI_Aint)sizeof(struct particle));
	MPI_Type_size(t, &n);
	CHECK(n == 1 + 3 * 8 + 4);
	MPI_Type_commit(&t);
	return t;
}

static void test_struct(void)
{
	MPI_Datatype t = particle();
	struct particle out[2] = {{'a', {1, 2, 3}, rank}, {'b', {4, 5, 6}, rank + 100}}, in[2];
	int next = (rank + 1) % size, previous = (rank + size - 1) % size, n = 0;
	MPI_Status status;
	memset(in, 0, sizeof in);
	MPI_Sendrecv(out, 2, t, next, 1, in, 2, t, previous, 1, MPI_COMM_WORLD, &status);
	CHECK(in[0].kind == 'a' && in[1].kind == 'b' && in[1].place[2] == 6 && in[0].id == previous && in[1].id == previous + 100);
	MPI_Get_count(&status, t, &n);
	CHECK(n == 2);
	MPI_Get_elements(&status, t, &n);
	CHECK(n == 10);
	MPI_Type_free(&t);
	CHECK(t == MPI_DATATYPE_NULL);
}

static void test_bottom(void)
{
	int a = rank == 0 ? 7 : 0, gap = -1, b = rank == 0 ? 9 : 0;
	MPI_Aint places[2];
	MPI_Datatype t;
	MPI_Get_address(&a, &places[0]);
	MPI_Get_address(&b, &places[1]);
	MPI_Type_create_hindexed_block(2, 1, places, MPI_INT, &t);
	MPI_Type_commit(&t);
	MPI_Bcast(MPI_BOTTOM, 1, t, 0, MPI_COMM_WORLD);
	CHECK(a == 7 && b == 9 && gap == -1);
	MPI_Type_free(&t);
}

static void test_column(void)
{
	int all[64], column[4][4], i;
	MPI_Datatype whole, t;
	for (i = 0; i < 16; i++)
		column[i / 4][i % 4] = 100 * rank + i;
	MPI_Type_vector(4, 1, 4, MPI_INT, &whole);
	MPI_Type_create_resized(whole, 0, sizeof(int), &t);
	MPI_Type_free(&whole);
	MPI_Type_commit(&t);
	MPI_Gather(&column[0][1], 1, t, all, 4, MPI_INT, 0, MPI_COMM_WORLD);
	for (i = 0; rank == 0 && i < 4 * size; i++)
		CHECK(all[i] == 100 * (i / 4) + 4 * (i % 4) + 1);
	MPI_Type_free(&t);
}

static void test_contents(void)
{
	const int sizes[2] = {4, 5}, parts[2] = {2, 3}, starts[2] = {1, 2};
	int integers[8], ni, na, nt, combiner;
	MPI_Datatype t, inner, from[1];
	MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &t);
	MPI_Type_get_envelope(t, &ni, &na, &nt, &combiner);
	CHECK(ni == 8 && na == 0 && nt == 1 && combiner == MPI_COMBINER_SUBARRAY);
	MPI_Type_contiguous(3, t, &inner);
	MPI_Type_get_contents(inner, 1, 0, 1, integers, NULL, from);
	CHECK(integers[0] == 3);
	MPI_Type_get_envelope(from[0], &ni, &na, &nt, &combiner);
	CHECK(combiner == MPI_COMBINER_SUBARRAY);
	MPI_Type_get_contents(t, 8, 0, 1, integers, NULL, &inner);
	CHECK(inner == MPI_INT && integers[0] == 2 && integers[2] == 5);
}

/* A distributed array: the second half of the rows, whose columns are dealt to one process. */
static void test_darray(void)
{
	const int sizes[2] = {4, 6}, distribs[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, grid[2] = {2, 1};
	const int dargs[2] = {MPI_DISTRIBUTE_DFLT_DARG, 2};
	int integers[12], n = 0;
	MPI_Datatype t, inner;
	CHECK(MPI_Type_create_darray(2, 1, 2, sizes, distribs, dargs, grid, MPI_ORDER_C, MPI_INT, &t) == MPI_SUCCESS);
	MPI_Type_size(t, &n);
	CHECK(n == 4 * 12);
	CHECK(MPI_Type_get_contents(t, 12, 0, 1, integers, NULL, &inner) == MPI_SUCCESS);
	CHECK(integers[2] == 2 && memcmp(integers + 3, sizes, sizeof sizes) == 0 && memcmp(integers + 5, distribs, sizeof distribs) == 0);
	CHECK(memcmp(integers + 7, dargs, sizeof dargs) == 0 && memcmp(integers + 9, grid, sizeof grid) == 0 && integers[11] == MPI_ORDER_C);
	MPI_Type_free(&t);
#if MPI_VERSION >= 4
	const MPI_Count large[2] = {4, 6};
	MPI_Count counts[2];
	CHECK(MPI_Type_create_darray_c(2, 1, 2, large, distribs, dargs, grid, MPI_ORDER_FORTRAN, MPI_INT, &t) == MPI_SUCCESS);
	CHECK(MPI_Type_get_contents_c(t, 10, 0, 2, 1, integers, NULL, counts, &inner) == MPI_SUCCESS);
	CHECK(memcmp(integers + 3, distribs, sizeof distribs) == 0 && memcmp(integers + 5, dargs, sizeof dargs) == 0 && integers[9] == MPI_ORDER_FORTRAN);
	CHECK(memcmp(counts, large, sizeof large) == 0);
	MPI_Type_free(&t);
#endif
}

/* Types of large constructors have large counts, and keep them in types made of them. */
#if MPI_VERSION >= 4
static void test_large_contents(void)
{
	const MPI_Count sizes[2] = {4, 5}, parts[2] = {2, 3}, starts[2] = {1, 2};
	MPI_Count ni, na, nc, nt, counts[6];
	MPI_Aint addresses[1];
	int integers[2], combiner = -1, x;
	MPI_Datatype t, outer, from[2];
	MPI_Type_create_subarray_c(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &t);
	MPI_Type_create_hvector(3, 1, 200, t, &outer);
	CHECK(MPI_Type_get_envelope_c(outer, &ni, &na, &nc, &nt, &combiner) == MPI_SUCCESS);
	CHECK(ni == 2 && na == 1 && nc == 0 && nt == 1 && combiner == MPI_COMBINER_HVECTOR);
	from[1] = MPI_BYTE;
	CHECK(MPI_Type_get_contents_c(outer, 2, 1, 0, 2, integers, addresses, NULL, from) == MPI_SUCCESS);
	CHECK(integers[0] == 3 && integers[1] == 1 && addresses[0] == 200 && from[1] == MPI_BYTE);
	CHECK(MPI_Type_get_envelope_c(from[0], &ni, &na, &nc, &nt, &combiner) == MPI_SUCCESS);
	CHECK(ni == 2 && na == 0 && nc == 6 && nt == 1 && combiner == MPI_COMBINER_SUBARRAY);
	CHECK(MPI_Type_get_contents_c(from[0], 2, 0, 6, 1, integers, NULL, counts, &outer) == MPI_SUCCESS);
	CHECK(integers[0] == 2 && integers[1] == MPI_ORDER_FORTRAN && outer == MPI_INT);
	CHECK(memcmp(counts, sizes, sizeof sizes) == 0 && memcmp(counts + 2, parts, sizeof parts) == 0 && memcmp(counts + 4, starts, sizeof starts) == 0);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(MPI_Type_get_contents_c(t, 2, 0, 5, 1, integers, NULL, counts, &outer) == MPI_ERR_ARG);
	CHECK(MPI_Type_get_envelope(t, &x, &x, &x, &combiner) == MPI_ERR_TYPE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Type_free(&t), MPI_Type_free(&from[0]);
}
#else
static void test_large_contents(void) {}
#endif

static void test_pack(void)
{
	char buffer[64];
	int position = 0, x = 5, n = 0;
	double y = 2.5;
	MPI_Pack(&x, 1, MPI_INT, buffer, 64, &position, MPI_COMM_WORLD);
	MPI_Pack(&y, 1, MPI_DOUBLE, buffer, 64, &position, MPI_COMM_WORLD);
	MPI_Pack_size(1, MPI_DOUBLE, MPI_COMM_WORLD, &n);
	CHECK(position == 12 && n >= 8);
	x = 0, y = 0, position = 0;
	MPI_Bcast(buffer, 12, MPI_PACKED, 0, MPI_COMM_WORLD);
	MPI_Unpack(buffer, 12, &position, &x, 1, MPI_INT, MPI_COMM_WORLD);
	MPI_Unpack(buffer, 12, &position, &y, 1, MPI_DOUBLE, MPI_COMM_WORLD);
	CHECK(position == 12 && x == 5 && y == 2.5);
}

static void add(void *in, void *inout, int *n, MPI_Datatype *t)
{
	(void)t;
	for (int i = 0; i < *n; i++)
		((struct particle *)inout)[i].id += ((struct particle *)in)[i].id;
}

static void test_operation(void)
{
	MPI_Datatype t = particle();
	MPI_Op op;
	struct particle mine = {'c', {0, 0, 0}, rank + 1}, sum;
	MPI_Op_create(add, 1, &op);
	MPI_Allreduce(&mine, &sum, 1, t, op, MPI_COMM_WORLD);
	CHECK(sum.id == size * (size + 1) / 2 && sum.kind == 'c');
	MPI_Op_free(&op);
	MPI_Type_free(&t);
}

/* Attributes of datatypes: copied by MPI_Type_dup, deleted with the type, each as its key's functions say. */
static int deleted[8], deletions;

static int copy(MPI_Datatype type, int key, void *extra, void *in, void *out, int *keep)
{
	(void)type, (void)key;
	*keep = *(int *)in != 3;
	*(int **)out = (int *)in + *(int *)extra;
	return MPI_SUCCESS;
}

static int delete(MPI_Datatype type, int key, void *value, void *extra)
{
	(void)type, (void)key, (void)extra;
	deleted[deletions++] = *(int *)value;
	return *(int *)value == 9 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void attributes(void)
{
	int own, shared, none, flag, values[5] = {1, 2, 3, 4, 9}, step = 1, *got;
	MPI_Datatype type, same;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Type_create_keyval(copy, delete, &own, &step);
	MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &shared, NULL);
	MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete, &none, NULL);
	MPI_Type_contiguous(2, MPI_INT, &type);
	CHECK(MPI_Type_get_attr(type, own, &got, &flag) == MPI_SUCCESS && !flag);
	CHECK(MPI_Type_set_attr(type, own, &values[0]) == MPI_SUCCESS);
	CHECK(MPI_Type_set_attr(type, shared, &values[3]) == MPI_SUCCESS && MPI_Type_set_attr(type, none, &values[3]) == MPI_SUCCESS);
	CHECK(MPI_Type_dup(type, &same) == MPI_SUCCESS);
	CHECK(MPI_Type_get_attr(same, own, &got, &flag) == MPI_SUCCESS && flag && got == &values[1]);
	CHECK(MPI_Type_get_attr(same, shared, &got, &flag) == MPI_SUCCESS && flag && got == &values[3]);
	CHECK(MPI_Type_get_attr(same, none, &got, &flag) == MPI_SUCCESS && !flag);
	CHECK(MPI_Type_set_attr(same, own, &values[2]) == MPI_SUCCESS && deletions == 1 && deleted[0] == 2);
	CHECK(MPI_Type_free(&same) == MPI_SUCCESS && deletions == 2 && deleted[1] == 3);
	CHECK(MPI_Type_delete_attr(type, none) == MPI_SUCCESS && deletions == 3 && deleted[2] == 4);
	CHECK(MPI_Type_set_attr(type, own, &values[4]) == MPI_SUCCESS && deletions == 4);
	CHECK(MPI_Type_free(&type) != MPI_SUCCESS && type != MPI_DATATYPE_NULL);
	values[4] = 8;
	CHECK(MPI_Type_free(&type) == MPI_SUCCESS && deletions == 6 && deleted[5] == 8);
	CHECK(MPI_Type_free_keyval(&own) == MPI_SUCCESS && own == MPI_KEYVAL_INVALID);
	CHECK(MPI_Type_get_attr(MPI_INT, own, &got, &flag) != MPI_SUCCESS);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	test_struct();
	test_bottom();
	test_column();
	test_contents();
	test_large_contents();
	test_darray();
	test_pack();
	test_operation();
	attributes();
	return finish();
}
