/* What MPICH's ABI has beside the standard's functions. Its libraries for Fortran have integers as attributes, and call the
   program's functions by proxies. */

typedef int MPI_Fint;
typedef int (MPI_Copy_proxy_function)(void *function, int handle, int keyval, void *extra, int type, void *value, void **copy, int *keep);
typedef int (MPI_Delete_proxy_function)(void *function, int handle, int keyval, int type, void *value, void *extra);

/* What a proxy is told of a value: C set an address, Fortran an integer. */
enum { ATTRIBUTE_POINTER, ATTRIBUTE_INTEGER };

/* The predefined keys of C are odd, and each is followed by Fortran's. */
static inline int from_fortran_keyval(int keyval)
{
	return keyval >> 26 == 0x64000000 >> 26 ? (keyval - 1) | 1 : keyval;
}

/* from_integer translates the values that have another one in this ABI. */
static inline void from_integer(int keyval, int there, void *attribute)
{
	intptr_t *value = attribute;
	if (!there)
		return;
	switch (to_keyval(from_fortran_keyval(keyval))) {
	case 502: /* MPI_IO */
	case 503: /* MPI_HOST */
		*value = from_rank((int32_t)*value);
		break;
	case 506: /* MPI_LASTUSEDCODE */
		*value = from_error((int32_t)*value);
	}
}

/* The handle of an object with attributes; kinds are the core's. */
static inline int from_object(int32_t kind, uintptr_t object)
{
	return kind == 0 ? from_comm(object) : kind == 1 ? from_datatype(object) : from_win(object);
}

static int32_t call_copy_proxy_function(uintptr_t proxy, uintptr_t fn, int32_t kind, uintptr_t object, int32_t keyval, uintptr_t extra, int32_t integer, uintptr_t in, uintptr_t *out, int *keep)
{
	void *value = NULL;
	int error = ((MPI_Copy_proxy_function *)proxy)((void *)fn, from_object(kind, object), keyval, (void *)extra, integer ? ATTRIBUTE_INTEGER : ATTRIBUTE_POINTER, (void *)in, &value, keep);
	*out = (uintptr_t)value;
	return to_error(error);
}

static int32_t call_delete_proxy_function(uintptr_t proxy, uintptr_t fn, int32_t kind, uintptr_t object, int32_t keyval, int32_t integer, uintptr_t value, uintptr_t extra)
{
	int error = ((MPI_Delete_proxy_function *)proxy)((void *)fn, from_object(kind, object), keyval, integer ? ATTRIBUTE_INTEGER : ATTRIBUTE_POINTER, (void *)value, (void *)extra);
	return to_error(error);
}

/* A status is the same numbers in Fortran. */
int PMPI_Status_c2f(const MPI_Status *status, MPI_Fint *numbers)
{
	if (status == IGNORE)
		return 15; /* MPI_ERR_OTHER */
	memcpy(numbers, status, sizeof *status);
	return 0;
}
int MPI_Status_c2f(const MPI_Status *status, MPI_Fint *numbers) __attribute__((weak, alias("PMPI_Status_c2f")));

int PMPI_Status_f2c(const MPI_Fint *numbers, MPI_Status *status)
{
	if (numbers == MPI_F_STATUS_IGNORE)
		return 15; /* MPI_ERR_OTHER */
	memcpy(status, numbers, sizeof *status);
	return 0;
}
int MPI_Status_f2c(const MPI_Fint *numbers, MPI_Status *status) __attribute__((weak, alias("PMPI_Status_f2c")));

/* A constant that MPICH's header has as a variable. */
extern const MPI_T_pvar_handle MPI_T_PVAR_ALL_HANDLES;
const MPI_T_pvar_handle MPI_T_PVAR_ALL_HANDLES = (MPI_T_pvar_handle)1;

/* What MPICH's mpichversion prints. No text may be longer than MPICH's own: the program has room for that. */
#define VERSION(name, text) \
	extern const char MPII_Version_##name[sizeof text]; \
	const char MPII_Version_##name[] = text;
VERSION(ABI, "")
VERSION(CC, "")
VERSION(CXX, "")
VERSION(F77, "")
VERSION(FC, "")
VERSION(configure, "")
VERSION(custom, "")
VERSION(date, "")
VERSION(device, "isthmus")
VERSION(string, "none")
