/* Handles of Open MPI's ABI, which are addresses of data: those that a program has are those that code has which is loaded
   later, and the library returns. PLUGIN is that code. */

#ifdef PLUGIN

#include <mpi.h>

MPI_Comm plugin_world(void);
MPI_Datatype plugin_type(int i);
int plugin_sum(MPI_Comm comm, int value);

MPI_Comm plugin_world(void) { return MPI_COMM_WORLD; }

MPI_Datatype plugin_type(int i)
{
	const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_DATATYPE_NULL, MPI_CHAR};
	return types[i];
}

int plugin_sum(MPI_Comm comm, int value)
{
	int sum = 0;
	MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
	return sum;
}

#else

#include "../check.h"
#include <dlfcn.h>

static void *found(void *library, const char *name)
{
	void *function = dlsym(library, name);
	CHECK(function != NULL);
	return function;
}

static void loaded(const char *name)
{
	const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_DATATYPE_NULL, MPI_CHAR};
	MPI_Comm (*world)(void);
	MPI_Datatype (*type)(int);
	int (*sum)(MPI_Comm, int);
	void *plugin = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!plugin)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(plugin != NULL);
	*(void **)&world = found(plugin, "plugin_world");
	*(void **)&type = found(plugin, "plugin_type");
	*(void **)&sum = found(plugin, "plugin_sum");
	CHECK(world() == MPI_COMM_WORLD);
	for (int i = 0; i < 4; i++)
		CHECK(type(i) == types[i]);
	CHECK(sum(MPI_COMM_WORLD, rank + 1) == size * (size + 1) / 2);
}

/* What the library returns compares equal to what the header has. */
static void returned(void)
{
	int integers, addresses, types, combiner, n;
	MPI_Aint lower, extent;
	MPI_Comm dup = (MPI_Comm)0x5a5a5a5a5a5a5a5a; /* what is there before a call does not matter */
	MPI_Group group;
	MPI_Errhandler handler;
	MPI_Datatype made, of[3] = {(MPI_Datatype)0x10, (MPI_Datatype)0x3333333333333333, (MPI_Datatype)0x20};
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	CHECK(dup != MPI_COMM_WORLD);
	MPI_Comm_get_errhandler(dup, &handler);
	CHECK(handler == MPI_ERRORS_ARE_FATAL);
	MPI_Comm_free(&dup);
	CHECK(dup == MPI_COMM_NULL);
	MPI_Comm_group(MPI_COMM_SELF, &group);
	MPI_Group_excl(group, 1, (int[]){0}, &group);
	CHECK(group == MPI_GROUP_EMPTY);
	MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_C_BOOL, MPI_LONG_LONG}, &made);
	MPI_Type_get_envelope(made, &integers, &addresses, &types, &combiner);
	CHECK(combiner == MPI_COMBINER_STRUCT && integers == 3 && addresses == 2 && types == 2);
	MPI_Type_get_contents(made, 3, 2, 3, (int[3]){0}, (MPI_Aint[2]){0}, of);
	CHECK(of[0] == MPI_C_BOOL && of[1] == MPI_LONG_LONG_INT && of[2] == (MPI_Datatype)0x20);
	MPI_Type_get_extent(made, &lower, &extent);
	CHECK(lower == 0 && extent == 16 && MPI_Type_size(made, &n) == MPI_SUCCESS && n == 9);
	MPI_Type_free(&made);
	CHECK(made == MPI_DATATYPE_NULL);
}

static void fortran(void)
{
	MPI_Comm dup;
	MPI_Status status = {.MPI_SOURCE = 1, .MPI_TAG = 2}, back;
	MPI_Fint numbers[6], wanted[] = {1, 2};
	CHECK(MPI_Comm_c2f(MPI_COMM_WORLD) == 0 && MPI_Comm_f2c(0) == MPI_COMM_WORLD && MPI_Comm_f2c(2) == MPI_COMM_NULL);
	CHECK(MPI_Type_f2c(MPI_Type_c2f(MPI_DOUBLE_PRECISION)) == MPI_DOUBLE_PRECISION && MPI_Op_f2c(MPI_Op_c2f(MPI_MAXLOC)) == MPI_MAXLOC);
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	CHECK(MPI_Comm_f2c(MPI_Comm_c2f(dup)) == dup);
	MPI_Comm_free(&dup);
	CHECK(MPI_Status_c2f(&status, numbers) == MPI_SUCCESS && memcmp(numbers, wanted, sizeof wanted) == 0);
	CHECK(MPI_Status_f2c(numbers, &back) == MPI_SUCCESS && memcmp(&back, &status, sizeof back) == 0);
}

/* Texts end where the room for them does. */
static void texts(void)
{
	char name[MPI_MAX_OBJECT_NAME + 2], longer[200];
	int n;
	memset(longer, 'x', sizeof longer);
	longer[sizeof longer - 1] = 0;
	name[MPI_MAX_OBJECT_NAME] = '!';
	MPI_Comm_set_name(MPI_COMM_WORLD, longer);
	MPI_Comm_get_name(MPI_COMM_WORLD, name, &n);
	CHECK(n == MPI_MAX_OBJECT_NAME - 1 && name[n - 1] == 'x' && name[n] == 0 && name[n + 1] == '!');
}

/* What is not named here is an error, not a crash. */
static void invalid(void)
{
	int class, n = 0;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Error_class(MPI_Type_size(NULL, &n), &class);
	CHECK(class == MPI_ERR_TYPE);
	MPI_Error_class(MPI_Send(&n, 1, MPI_INT, size, 0, MPI_COMM_WORLD), &class);
	CHECK(class == MPI_ERR_RANK);
	MPI_Error_class(MPI_Comm_set_errhandler(MPI_COMM_WORLD, NULL), &class);
	CHECK(class == MPI_ERR_OTHER); /* MPI-3.1 has no class for this */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	loaded(argv[1]);
	returned();
	fortran();
	texts();
	invalid();
	return finish();
}

#endif
