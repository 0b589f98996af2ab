/* Communicators of what shares hardware. All processes here are on one node. */

#include "check.h"

/* guided is the number of processes that share a resource, 0 for MPI_COMM_NULL. */
static int guided(int type, MPI_Info info)
{
	MPI_Comm comm = MPI_COMM_SELF;
	int n = 0;
	CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, type, -rank, info, &comm) == MPI_SUCCESS);
	if (comm != MPI_COMM_NULL) {
		int r;
		MPI_Comm_size(comm, &n), MPI_Comm_rank(comm, &r);
		CHECK(r == size - 1 - rank);
		MPI_Comm_free(&comm);
	}
	return n;
}

static void by_name(int type)
{
	MPI_Info info;
	MPI_Info_create(&info);
	CHECK(guided(type, MPI_INFO_NULL) == 0 && guided(type, info) == 0);
	MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory");
	CHECK(guided(type, info) == size);
	MPI_Info_set(info, "mpi_hw_resource_type", "isthmus://site");
	CHECK(guided(type, info) == size);
	MPI_Info_set(info, "mpi_hw_resource_type", "hwloc://Package");
	CHECK(guided(type, info) == 0);
	MPI_Info_free(&info);
}

/* There is no further level, but where a process is left out. */
static void unguided(void)
{
	char value[64] = "";
	int flag, n;
	MPI_Info info;
	MPI_Comm comm;
	MPI_Info_create(&info);
	CHECK(guided(MPI_COMM_TYPE_HW_UNGUIDED, info) == 0);
	MPI_Info_get(info, "mpi_hw_resource_type", 63, value, &flag);
	CHECK(!flag);
	CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &comm) == MPI_SUCCESS);
	CHECK((comm == MPI_COMM_NULL) == (rank == 0));
	MPI_Info_get(info, "mpi_hw_resource_type", 63, value, &flag);
	CHECK(flag == (rank != 0));
	if (rank != 0) {
		MPI_Comm_size(comm, &n);
		CHECK(n == size - 1 && strcmp(value, "isthmus://site") == 0);
		MPI_Comm_free(&comm);
	}
	MPI_Info_free(&info);
}

#if MPI_VERSION * 10 + MPI_SUBVERSION >= 41
/* All that is there can be asked for. */
static void resources(void)
{
	char key[MPI_MAX_INFO_KEY + 1], value[64];
	int n = 0, flag;
	MPI_Info have, info;
	CHECK(MPI_Get_hw_resource_info(&have) == MPI_SUCCESS);
	MPI_Info_get_nkeys(have, &n);
	CHECK(n == 2);
	MPI_Info_create(&info);
	for (int i = 0; i < n; i++) {
		MPI_Info_get_nthkey(have, i, key);
		MPI_Info_get(have, key, 63, value, &flag);
		CHECK(flag && strcmp(value, "true") == 0);
		MPI_Info_set(info, "mpi_hw_resource_type", key);
		CHECK(guided(MPI_COMM_TYPE_RESOURCE_GUIDED, info) == size);
	}
	by_name(MPI_COMM_TYPE_RESOURCE_GUIDED);
	MPI_Info_free(&info), MPI_Info_free(&have);
}
#else
static void resources(void) {}
#endif

int main(int argc, char **argv)
{
	MPI_Comm comm;
	begin(&argc, &argv);
	by_name(MPI_COMM_TYPE_HW_GUIDED);
	unguided();
	resources();
	CHECK(guided(MPI_COMM_TYPE_SHARED, MPI_INFO_NULL) == size && guided(MPI_UNDEFINED, MPI_INFO_NULL) == 0);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, 9, 0, MPI_INFO_NULL, &comm) == MPI_ERR_ARG);
	return finish();
}
