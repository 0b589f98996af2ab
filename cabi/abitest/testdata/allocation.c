/* Memory of the library's. */

#include "check.h"
#include <stdint.h>

static int class_of(int code)
{
	int class;
	MPI_Error_class(code, &class);
	return class;
}

int main(int argc, char **argv)
{
	int local, *out, *in, *page;
	void *none;
	MPI_Info info;
	MPI_Request r;
	begin(&argc, &argv);

	/* It is C's: it can be sent from, received into, and passed to C. */
	CHECK(MPI_Alloc_mem(1000 * sizeof(int), MPI_INFO_NULL, &out) == MPI_SUCCESS);
	CHECK(MPI_Alloc_mem(1000 * sizeof(int), MPI_INFO_NULL, &in) == MPI_SUCCESS);
	CHECK((uintptr_t)out % 16 == 0 && out != in);
	for (int i = 0; i < 1000; i++)
		out[i] = 1000 * rank + i, in[i] = -1;
	MPI_Irecv(in, 1000, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &r);
	MPI_Send(out, 1000, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	for (int i = 0; i < 1000; i++)
		CHECK(in[i] == (rank + size - 1) % size * 1000 + i);
	memset(in, 0, 1000 * sizeof(int));
	CHECK(MPI_Free_mem(in) == MPI_SUCCESS && MPI_Free_mem(out) == MPI_SUCCESS);

	MPI_Info_create(&info);
	MPI_Info_set(info, "mpi_minimum_memory_alignment", "4096");
	CHECK(MPI_Alloc_mem(1, info, &page) == MPI_SUCCESS && (uintptr_t)page % 4096 == 0);
	CHECK(MPI_Alloc_mem(0, MPI_INFO_NULL, &none) == MPI_SUCCESS);
	CHECK(MPI_Free_mem(page) == MPI_SUCCESS && MPI_Free_mem(none) == MPI_SUCCESS);

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(class_of(MPI_Free_mem(&local)) == MPI_ERR_BASE);
	CHECK(class_of(MPI_Free_mem(page)) == MPI_ERR_BASE);
	CHECK(class_of(MPI_Alloc_mem(-1, MPI_INFO_NULL, &none)) == MPI_ERR_ARG);
	CHECK(class_of(MPI_Alloc_mem((MPI_Aint)1 << 60, MPI_INFO_NULL, &none)) == MPI_ERR_NO_MEM);
	MPI_Info_set(info, "mpi_minimum_memory_alignment", "48");
	CHECK(class_of(MPI_Alloc_mem(1, info, &none)) == MPI_ERR_INFO_VALUE);
	MPI_Info_free(&info);
	return finish();
}
