/* Functions of Open MPI's library that the standard has no more, or not in its ABI. */

/* NAMED defines a function with both of its names. */
#define NAMED(result, name, parameters) \
	result P##name parameters; \
	result name parameters __attribute__((weak, alias("P" #name))); \
	result P##name parameters

/* Handles in Fortran are other numbers. */
#define CONVERTED(name, type, base) \
	NAMED(MPI_Fint, MPI_##name##_c2f, (type handle)) { return from_##base##_to_fortran(to_##base(handle)); } \
	NAMED(type, MPI_##name##_f2c, (MPI_Fint handle)) { return from_##base(to_##base##_of_fortran(handle)); }

CONVERTED(Comm, MPI_Comm, comm)
CONVERTED(Errhandler, MPI_Errhandler, errhandler)
CONVERTED(File, MPI_File, file)
CONVERTED(Group, MPI_Group, group)
CONVERTED(Info, MPI_Info, info)
CONVERTED(Message, MPI_Message, message)
CONVERTED(Op, MPI_Op, op)
CONVERTED(Request, MPI_Request, request)
CONVERTED(Type, MPI_Datatype, datatype)
CONVERTED(Win, MPI_Win, win)

/* A status is the same six numbers in Fortran. */
NAMED(int, MPI_Status_c2f, (const MPI_Status *status, MPI_Fint *numbers))
{
	memcpy(numbers, status, sizeof *status);
	return 0;
}

NAMED(int, MPI_Status_f2c, (const MPI_Fint *numbers, MPI_Status *status))
{
	memcpy(status, numbers, sizeof *status);
	return 0;
}

/* No buffer lies in a graphics processor's memory. */
int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void) { return 0; }

/* What Open MPI's library for C++ calls for functions of the program's that are in C++. */
#define PRIVATE(name) void name(void); void name(void) { isthmus_missing(#name); }
PRIVATE(ompi_attr_create_keyval)
PRIVATE(ompi_errhandler_create)
PRIVATE(ompi_errhandler_invoke)
PRIVATE(ompi_op_set_cxx_callback)

/* What MPI-3.0 removed, under the names that replaced it. */
NAMED(int, MPI_Address, (void *location, MPI_Aint *address)) { return PMPI_Get_address(location, address); }

NAMED(int, MPI_Errhandler_create, (MPI_Comm_errhandler_function *function, MPI_Errhandler *handler))
{
	return PMPI_Comm_create_errhandler(function, handler);
}

NAMED(int, MPI_Errhandler_set, (MPI_Comm comm, MPI_Errhandler handler)) { return PMPI_Comm_set_errhandler(comm, handler); }
NAMED(int, MPI_Errhandler_get, (MPI_Comm comm, MPI_Errhandler *handler)) { return PMPI_Comm_get_errhandler(comm, handler); }

NAMED(int, MPI_Type_extent, (MPI_Datatype type, MPI_Aint *extent))
{
	MPI_Aint lower;
	return PMPI_Type_get_extent(type, &lower, extent);
}

NAMED(int, MPI_Type_lb, (MPI_Datatype type, MPI_Aint *lower))
{
	MPI_Aint extent;
	return PMPI_Type_get_extent(type, lower, &extent);
}

NAMED(int, MPI_Type_ub, (MPI_Datatype type, MPI_Aint *upper))
{
	MPI_Aint lower = 0, extent = 0;
	int error = PMPI_Type_get_extent(type, &lower, &extent);
	*upper = lower + extent;
	return error;
}

NAMED(int, MPI_Type_hvector, (int count, int length, MPI_Aint stride, MPI_Datatype type, MPI_Datatype *made))
{
	return PMPI_Type_create_hvector(count, length, stride, type, made);
}

NAMED(int, MPI_Type_hindexed, (int count, const int lengths[], const MPI_Aint places[], MPI_Datatype type, MPI_Datatype *made))
{
	return PMPI_Type_create_hindexed(count, lengths, places, type, made);
}

NAMED(int, MPI_Type_struct, (int count, const int lengths[], const MPI_Aint places[], const MPI_Datatype types[], MPI_Datatype *made))
{
	return PMPI_Type_create_struct(count, lengths, places, types, made);
}

/* The functions of keys that copy nothing, copy, and delete nothing. */
#define ATTRIBUTES(name, type) \
	int OMPI_C_MPI_##name##NULL_COPY_FN(type object, int key, void *extra, void *in, void *out, int *keep); \
	int OMPI_C_MPI_##name##NULL_COPY_FN(type object, int key, void *extra, void *in, void *out, int *keep) { *keep = 0; return 0; } \
	int OMPI_C_MPI_##name##DUP_FN(type object, int key, void *extra, void *in, void *out, int *keep); \
	int OMPI_C_MPI_##name##DUP_FN(type object, int key, void *extra, void *in, void *out, int *keep) { *(void **)out = in; *keep = 1; return 0; } \
	int OMPI_C_MPI_##name##NULL_DELETE_FN(type object, int key, void *value, void *extra); \
	int OMPI_C_MPI_##name##NULL_DELETE_FN(type object, int key, void *value, void *extra) { return 0; }

ATTRIBUTES(, MPI_Comm)
ATTRIBUTES(COMM_, MPI_Comm)
ATTRIBUTES(TYPE_, MPI_Datatype)
ATTRIBUTES(WIN_, MPI_Win)
