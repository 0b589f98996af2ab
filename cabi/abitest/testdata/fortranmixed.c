/* What fortranmixed.f90 calls: handles, statuses and attributes that came from Fortran. */
#include <mpi.h>
#include <stddef.h>

static MPI_Aint cached = 77;

static int copies(MPI_Comm comm, int key, void *extra, void *in, void *out, int *keep)
{
	(void)comm, (void)key, (void)extra;
	*(void **)out = in;
	*keep = 1;
	return MPI_SUCCESS;
}

/* c_key makes a key whose values C copies. */
int c_key(void)
{
	int key;
	MPI_Comm_create_keyval(copies, MPI_COMM_NULL_DELETE_FN, &key, NULL);
	return key;
}

/* c_value returns the integer at the address that C gets. */
MPI_Aint c_value(int comm, int key)
{
	MPI_Aint *value;
	int there;
	MPI_Comm_get_attr(MPI_Comm_fromint(comm), key, &value, &there);
	return there ? *value : -1;
}

/* c_set caches an address, and returns it. */
MPI_Aint c_set(int comm, int key)
{
	MPI_Comm_set_attr(MPI_Comm_fromint(comm), key, &cached);
	return (MPI_Aint)&cached;
}

/* c_count returns the number of integers that a status tells of. */
int c_count(const MPI_Status *status, int type)
{
	int n;
	MPI_Get_count(status, MPI_Type_fromint(type), &n);
	return n + 100 * status->MPI_TAG;
}
