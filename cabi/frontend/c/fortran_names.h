/* Routines whose arguments are not those of C, and functions of programs that are called with addresses only. */

ROUTINE(init, INIT, (MPI_Fint *ierr))
{
	isthmus_enter("MPI_Init");
	set_error(ierr, from_error(isthmus_Init(0, 0)));
}

ROUTINE(init_thread, INIT_THREAD, (const int *required, int *provided, MPI_Fint *ierr))
{
	int32_t level = 0;
	isthmus_enter("MPI_Init_thread");
	set_error(ierr, from_error(isthmus_Init_thread(0, 0, to_thread(*required), (uintptr_t)&level)));
	*provided = from_thread(level);
}

ROUTINE(initialized, INITIALIZED, (int *flag, MPI_Fint *ierr))
{
	*flag = isthmus_is_initialized();
	set_error(ierr, 0);
}

ROUTINE(finalized, FINALIZED, (int *flag, MPI_Fint *ierr))
{
	*flag = isthmus_is_finalized();
	set_error(ierr, 0);
}

ROUTINE(pcontrol, PCONTROL, (const int *level))
{
	isthmus_enter("MPI_Pcontrol");
	isthmus_Pcontrol(*level);
}

FUNCTION(double, wtime, WTIME, (void))
{
	isthmus_enter("MPI_Wtime");
	return isthmus_Wtime();
}

FUNCTION(double, wtick, WTICK, (void))
{
	isthmus_enter("MPI_Wtick");
	return isthmus_Wtick();
}

FUNCTION(MPI_Aint, aint_add, AINT_ADD, (const MPI_Aint *base, const MPI_Aint *disp)) { return *base + *disp; }
FUNCTION(MPI_Aint, aint_diff, AINT_DIFF, (const MPI_Aint *a, const MPI_Aint *b)) { return *a - *b; }

/* The compiler may not move accesses of memory over this call, and needs no more. */
ROUTINE(f_sync_reg, F_SYNC_REG, (void *buffer)) { (void)buffer; }

/* Values of attributes are integers: of kind MPI_ADDRESS_KIND, or default ones in what MPI-2.0 deprecated. In C those are the
   addresses of integers, as are the standard's (MPI-5.0, section 19.3.7). The core has the functions of a key called by proxies, which
   tells these the integer. */
#define CALLERS(name, base, value_type) \
	typedef void name##_copy_function(MPI_Fint *, MPI_Fint *, value_type *, value_type *, value_type *, MPI_Fint *, MPI_Fint *); \
	typedef void name##_delete_function(MPI_Fint *, MPI_Fint *, value_type *, value_type *, MPI_Fint *); \
	static int32_t call_##name##_copy(uintptr_t proxy, uintptr_t fn, int32_t kind, uintptr_t object, int32_t keyval, uintptr_t extra, int32_t integer, uintptr_t in, uintptr_t *out, int *keep) \
	{ \
		MPI_Fint handle = from_##base(object), key = keyval, error = 0; \
		value_type state = (value_type)extra, old = (value_type)in, new = 0; \
		((name##_copy_function *)fn)(&handle, &key, &state, &old, &new, keep, &error); \
		*out = (uintptr_t)new; \
		return to_error(error); \
	} \
	static int32_t call_##name##_delete(uintptr_t proxy, uintptr_t fn, int32_t kind, uintptr_t object, int32_t keyval, int32_t integer, uintptr_t value, uintptr_t extra) \
	{ \
		MPI_Fint handle = from_##base(object), key = keyval, error = 0; \
		value_type state = (value_type)extra, old = (value_type)value; \
		((name##_delete_function *)fn)(&handle, &key, &old, &state, &error); \
		return to_error(error); \
	}

CALLERS(comm, comm, MPI_Aint)
CALLERS(type, datatype, MPI_Aint)
CALLERS(old, comm, MPI_Fint)

#define KEYVAL(name, NAME, Name, callers, value_type) \
	ROUTINE(name, NAME, (void (*copy)(void), void (*delete)(void), int *keyval, const value_type *extra, MPI_Fint *ierr)) \
	{ \
		int32_t key = 0; \
		isthmus_enter("MPI_" #Name); \
		int32_t error = isthmus_##Name((uintptr_t)copy, 0, (uintptr_t)delete, 0, (uintptr_t)&key, (uintptr_t)*extra); \
		if (!error) \
			error = isthmus_Fortran_Keyval_set_proxy(key, 0, (uintptr_t)&call_##callers##_copy, 0, (uintptr_t)&call_##callers##_delete); \
		set_error(ierr, from_error(error)); \
		*keyval = from_keyval(key); \
	}

KEYVAL(comm_create_keyval, COMM_CREATE_KEYVAL, Comm_create_keyval, comm, MPI_Aint)
KEYVAL(type_create_keyval, TYPE_CREATE_KEYVAL, Type_create_keyval, type, MPI_Aint)
KEYVAL(keyval_create, KEYVAL_CREATE, Keyval_create, old, MPI_Fint)

enum { FIRST_ADDED_KEY = 4096 };

#define GET_ATTRIBUTE(name, NAME, Name, Object, base, value_type) \
	ROUTINE(name, NAME, (const MPI_Fint *object, const int *keyval, value_type *value, int *flag, MPI_Fint *ierr)) \
	{ \
		uintptr_t found = 0; \
		isthmus_enter("MPI_" #Name); \
		if (to_keyval(*keyval) >= FIRST_ADDED_KEY) { \
			int64_t number = 0; \
			const int error = from_error(isthmus_Fortran_##Object##_get_attr(to_##base(*object), *keyval, (uintptr_t)&number, (uintptr_t)flag, 0)); \
			if (!error && *flag) \
				*value = (value_type)number; \
			set_error(ierr, error); \
			return; \
		} \
		const int error = from_error(isthmus_##Name(to_##base(*object), to_keyval(*keyval), (uintptr_t)&found, (uintptr_t)flag)); \
		set_error(ierr, error); \
		if (error || !*flag) \
			return; \
		from_attribute(*keyval, 1, &found); \
		*value = (value_type)*(int *)found; \
	}

GET_ATTRIBUTE(comm_get_attr, COMM_GET_ATTR, Comm_get_attr, Comm, comm, MPI_Aint)
GET_ATTRIBUTE(type_get_attr, TYPE_GET_ATTR, Type_get_attr, Type, datatype, MPI_Aint)
GET_ATTRIBUTE(attr_get, ATTR_GET, Attr_get, Comm, comm, MPI_Fint)

#define SET_ATTRIBUTE(name, NAME, Name, Object, base, value_type) \
	ROUTINE(name, NAME, (const MPI_Fint *object, const int *keyval, const value_type *value, MPI_Fint *ierr)) \
	{ \
		isthmus_enter("MPI_" #Name); \
		set_error(ierr, from_error(isthmus_Fortran_##Object##_set_attr(to_##base(*object), to_keyval(*keyval), (uintptr_t)*value, 0))); \
	}

SET_ATTRIBUTE(comm_set_attr, COMM_SET_ATTR, Comm_set_attr, Comm, comm, MPI_Aint)
SET_ATTRIBUTE(type_set_attr, TYPE_SET_ATTR, Type_set_attr, Type, datatype, MPI_Aint)
SET_ATTRIBUTE(attr_put, ATTR_PUT, Attr_put, Comm, comm, MPI_Fint)

/* The functions of keys that copy nothing, copy, and delete nothing. */
#define NAMES(name, NAME, parameters) \
	void mpi_##name##_ parameters; \
	void mpi_##name parameters __attribute__((weak, alias("mpi_" #name "_"))); \
	void mpi_##name##__ parameters __attribute__((weak, alias("mpi_" #name "_"))); \
	void MPI_##NAME parameters __attribute__((weak, alias("mpi_" #name "_"))); \
	void mpi_##name##_ parameters
#define ATTRIBUTES(name, NAME, value_type) \
	NAMES(name##null_copy_fn, NAME##NULL_COPY_FN, (MPI_Fint *object, MPI_Fint *key, value_type *extra, value_type *in, value_type *out, MPI_Fint *keep, MPI_Fint *ierr)) \
	{ \
		*keep = *ierr = 0; \
	} \
	NAMES(name##dup_fn, NAME##DUP_FN, (MPI_Fint *object, MPI_Fint *key, value_type *extra, value_type *in, value_type *out, MPI_Fint *keep, MPI_Fint *ierr)) \
	{ \
		*out = *in, *keep = 1, *ierr = 0; \
	} \
	NAMES(name##null_delete_fn, NAME##NULL_DELETE_FN, (MPI_Fint *object, MPI_Fint *key, value_type *value, value_type *extra, MPI_Fint *ierr)) \
	{ \
		*ierr = 0; \
	}

ATTRIBUTES(, , MPI_Fint)
ATTRIBUTES(comm_, COMM_, MPI_Aint)
ATTRIBUTES(type_, TYPE_, MPI_Aint)
ATTRIBUTES(win_, WIN_, MPI_Aint)

/* What MPI-3.0 removed. */
ROUTINE(address, ADDRESS, (void *location, MPI_Fint *address, MPI_Fint *ierr))
{
	*address = (MPI_Fint)to_buffer(location);
	set_error(ierr, 0);
}

/* bounds returns the lower bound of a type and its extent. */
static int bounds(MPI_Fint type, int64_t *lower, int64_t *extent)
{
	*lower = *extent = 0;
	isthmus_enter("MPI_Type_extent");
	return from_error(isthmus_Type_get_extent(to_datatype(type), (uintptr_t)lower, (uintptr_t)extent));
}

ROUTINE(type_extent, TYPE_EXTENT, (const MPI_Fint *type, MPI_Fint *extent, MPI_Fint *ierr))
{
	int64_t low, length;
	set_error(ierr, bounds(*type, &low, &length));
	*extent = (MPI_Fint)length;
}

ROUTINE(type_lb, TYPE_LB, (const MPI_Fint *type, MPI_Fint *lower, MPI_Fint *ierr))
{
	int64_t low, length;
	set_error(ierr, bounds(*type, &low, &length));
	*lower = (MPI_Fint)low;
}

ROUTINE(type_ub, TYPE_UB, (const MPI_Fint *type, MPI_Fint *upper, MPI_Fint *ierr))
{
	int64_t low, length;
	set_error(ierr, bounds(*type, &low, &length));
	*upper = (MPI_Fint)(low + length);
}

/* made returns a type that a function of the core's has made, or the error. */
static MPI_Fint made(int32_t error, uintptr_t type, MPI_Fint *handle)
{
	if (type)
		*handle = from_datatype(type);
	return from_error(error);
}

ROUTINE(type_hvector, TYPE_HVECTOR, (const int *count, const int *length, const MPI_Fint *stride, const MPI_Fint *type, MPI_Fint *newtype, MPI_Fint *ierr))
{
	uintptr_t out = 0;
	isthmus_enter("MPI_Type_hvector");
	const int32_t error = isthmus_Type_create_hvector(*count, *length, *stride, to_datatype(*type), (uintptr_t)&out);
	set_error(ierr, made(error, out, newtype));
}

/* wider returns places as addresses. */
static MPI_Aint *wider(const MPI_Fint *places, int n)
{
	MPI_Aint *all = array(n, sizeof *all);
	for (int i = 0; i < n; i++)
		all[i] = places[i];
	return all;
}

ROUTINE(type_hindexed, TYPE_HINDEXED, (const int *count, const int *lengths, const MPI_Fint *places, const MPI_Fint *type, MPI_Fint *newtype, MPI_Fint *ierr))
{
	uintptr_t out = 0;
	MPI_Aint *addresses = wider(places, *count);
	isthmus_enter("MPI_Type_hindexed");
	const int32_t error = isthmus_Type_create_hindexed(*count, (uintptr_t)lengths, (uintptr_t)addresses, to_datatype(*type), (uintptr_t)&out, 0);
	set_error(ierr, made(error, out, newtype));
	free(addresses);
}

ROUTINE(type_struct, TYPE_STRUCT, (const int *count, const int *lengths, const MPI_Fint *places, const MPI_Fint *types, MPI_Fint *newtype, MPI_Fint *ierr))
{
	uintptr_t out = 0, *of = to_datatypes(types, *count);
	MPI_Aint *addresses = wider(places, *count);
	isthmus_enter("MPI_Type_struct");
	const int32_t error = isthmus_Type_create_struct(*count, (uintptr_t)lengths, (uintptr_t)addresses, (uintptr_t)of, (uintptr_t)&out, 0);
	set_error(ierr, made(error, out, newtype));
	free(addresses), free(of);
}

ROUTINE(errhandler_create, ERRHANDLER_CREATE, (void (*function)(void), MPI_Fint *handler, MPI_Fint *ierr))
{
	uintptr_t out = 0;
	isthmus_enter("MPI_Errhandler_create");
	set_error(ierr, from_error(isthmus_Comm_create_errhandler((uintptr_t)function, (uintptr_t)&call_comm_errhandler_function, (uintptr_t)&out)));
	if (out)
		*handler = from_errhandler(out);
}

ROUTINE(errhandler_set, ERRHANDLER_SET, (const MPI_Fint *comm, const MPI_Fint *handler, MPI_Fint *ierr))
{
	isthmus_enter("MPI_Errhandler_set");
	set_error(ierr, from_error(isthmus_Comm_set_errhandler(to_comm(*comm), to_errhandler(*handler))));
}

ROUTINE(errhandler_get, ERRHANDLER_GET, (const MPI_Fint *comm, MPI_Fint *handler, MPI_Fint *ierr))
{
	uintptr_t out = 0;
	isthmus_enter("MPI_Errhandler_get");
	set_error(ierr, from_error(isthmus_Comm_get_errhandler(to_comm(*comm), (uintptr_t)&out)));
	if (out)
		*handler = from_errhandler(out);
}
