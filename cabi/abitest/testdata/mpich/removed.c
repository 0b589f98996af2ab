/* What MPICH's library has beside the standard's functions: MPI-1's, which its header still has, and those of Fortran's statuses. */

#include "../check.h"

static void test_types(void)
{
	struct { int a; double b; } both[2];
	int lengths[2] = {1, 1}, size = 0;
	MPI_Aint at[2], lb = -1, ub = -1, extent = -1;
	MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE}, type, wide, list;
	CHECK(MPI_Address(&both[0].a, &at[0]) == MPI_SUCCESS && MPI_Address(&both[0].b, &at[1]) == MPI_SUCCESS);
	at[1] -= at[0], at[0] = 0;
	CHECK(at[1] == (char *)&both[0].b - (char *)&both[0].a);
	CHECK(MPI_Type_struct(2, lengths, at, parts, &type) == MPI_SUCCESS);
	MPI_Type_size(type, &size);
	CHECK(size == sizeof(int) + sizeof(double));
	CHECK(MPI_Type_extent(type, &extent) == MPI_SUCCESS && extent == sizeof both[0]);
	CHECK(MPI_Type_hvector(2, 1, 100, MPI_INT, &wide) == MPI_SUCCESS);
	at[0] = 8, at[1] = 40;
	CHECK(MPI_Type_hindexed(2, lengths, at, MPI_INT, &list) == MPI_SUCCESS);
	CHECK(MPI_Type_extent(wide, &extent) == MPI_SUCCESS && extent == 100 + sizeof(int));
	CHECK(MPI_Type_lb(list, &lb) == MPI_SUCCESS && MPI_Type_ub(list, &ub) == MPI_SUCCESS && lb == 8 && ub == 40 + sizeof(int));
	MPI_Type_free(&type);
	MPI_Type_free(&wide);
	MPI_Type_free(&list);
}

static int codes;

static void handle(MPI_Comm *comm, int *code, ...)
{
	CHECK(*comm == MPI_COMM_WORLD && *code != MPI_SUCCESS);
	codes++;
}

static void test_errhandlers(void)
{
	MPI_Errhandler handler, now;
	MPI_Aint extent;
	CHECK(MPI_Errhandler_create(handle, &handler) == MPI_SUCCESS && MPI_Errhandler_set(MPI_COMM_WORLD, handler) == MPI_SUCCESS);
	CHECK(MPI_Errhandler_get(MPI_COMM_WORLD, &now) == MPI_SUCCESS && now == handler);
	MPI_Type_extent(MPI_DATATYPE_NULL, &extent);
	CHECK(codes == 1);
	MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Errhandler_free(&handler);
	MPI_Errhandler_free(&now);
}

static void test_fortran(void)
{
	MPI_Status status, back;
	MPI_Fint numbers[sizeof status / sizeof(MPI_Fint)];
	int out = 7, in = 0, count = -1, supported = -1;
	MPI_Sendrecv(&out, 1, MPI_INT, rank, 3, &in, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &status);
	CHECK(MPI_Status_c2f(&status, numbers) == MPI_SUCCESS && MPI_Status_f2c(numbers, &back) == MPI_SUCCESS);
	CHECK(back.MPI_SOURCE == rank && back.MPI_TAG == 3 && MPI_Get_count(&back, MPI_INT, &count) == MPI_SUCCESS && count == 1);
	CHECK(MPI_Status_c2f(MPI_STATUS_IGNORE, numbers) != MPI_SUCCESS);
	CHECK(MPI_File_f2c(MPI_File_c2f(MPI_FILE_NULL)) == MPI_FILE_NULL);
	CHECK(!MPIX_Query_cuda_support() && MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && !supported);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	test_types();
	test_errhandlers();
	test_fortran();
	return finish();
}
