/* How the core calls functions of a program that was compiled for the standard ABI. */

#include "support.h"

static void __attribute__((unused)) call_user_function(uintptr_t fn, uintptr_t in, uintptr_t inout, int64_t n, uintptr_t datatype)
{
	int len = (int)n;
	MPI_Datatype type = (MPI_Datatype)datatype;
	((MPI_User_function *)fn)((void *)in, (void *)inout, &len, &type);
}

static void __attribute__((unused)) call_user_function_c(uintptr_t fn, uintptr_t in, uintptr_t inout, int64_t n, uintptr_t datatype)
{
	MPI_Count len = n;
	MPI_Datatype type = (MPI_Datatype)datatype;
	((MPI_User_function_c *)fn)((void *)in, (void *)inout, &len, &type);
}

static int32_t __attribute__((unused)) call_grequest_query_function(uintptr_t fn, uintptr_t extra, uintptr_t status)
{
	MPI_Status ignored = {MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_SUCCESS, {0}};
	return ((MPI_Grequest_query_function *)fn)((void *)extra, status ? (MPI_Status *)status : &ignored);
}

static int32_t __attribute__((unused)) call_grequest_free_function(uintptr_t fn, uintptr_t extra, uintptr_t unused)
{
	return ((MPI_Grequest_free_function *)fn)((void *)extra);
}

static int32_t __attribute__((unused)) call_grequest_cancel_function(uintptr_t fn, uintptr_t extra, uintptr_t complete)
{
	return ((MPI_Grequest_cancel_function *)fn)((void *)extra, (int)complete);
}

static void __attribute__((unused)) call_comm_errhandler_function(uintptr_t fn, uintptr_t handle, int32_t code)
{
	MPI_Comm comm = (MPI_Comm)handle;
	int error = code;
	((MPI_Comm_errhandler_function *)fn)(&comm, &error);
}

static void __attribute__((unused)) call_session_errhandler_function(uintptr_t fn, uintptr_t handle, int32_t code)
{
	MPI_Session session = (MPI_Session)handle;
	int error = code;
	((MPI_Session_errhandler_function *)fn)(&session, &error);
}

static int32_t __attribute__((unused)) call_type_copy_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t in, uintptr_t *out, int *keep)
{
	void *value = NULL;
	int error = ((MPI_Type_copy_attr_function *)fn)((MPI_Datatype)object, keyval, (void *)extra, (void *)in, &value, keep);
	*out = (uintptr_t)value;
	return error;
}

static int32_t __attribute__((unused)) call_type_delete_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra)
{
	int error = ((MPI_Type_delete_attr_function *)fn)((MPI_Datatype)object, keyval, (void *)value, (void *)extra);
	return error;
}

static int32_t __attribute__((unused)) call_comm_copy_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t in, uintptr_t *out, int *keep)
{
	void *value = NULL;
	int error = ((MPI_Comm_copy_attr_function *)fn)((MPI_Comm)object, keyval, (void *)extra, (void *)in, &value, keep);
	*out = (uintptr_t)value;
	return error;
}

static int32_t __attribute__((unused)) call_comm_delete_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra)
{
	int error = ((MPI_Comm_delete_attr_function *)fn)((MPI_Comm)object, keyval, (void *)value, (void *)extra);
	return error;
}

static void __attribute__((unused)) call_win_errhandler_function(uintptr_t fn, uintptr_t handle, int32_t code)
{
	MPI_Win win = (MPI_Win)handle;
	int error = code;
	((MPI_Win_errhandler_function *)fn)(&win, &error);
}

static int32_t __attribute__((unused)) call_win_copy_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t in, uintptr_t *out, int *keep)
{
	void *value = NULL;
	int error = ((MPI_Win_copy_attr_function *)fn)((MPI_Win)object, keyval, (void *)extra, (void *)in, &value, keep);
	*out = (uintptr_t)value;
	return error;
}

static int32_t __attribute__((unused)) call_win_delete_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra)
{
	int error = ((MPI_Win_delete_attr_function *)fn)((MPI_Win)object, keyval, (void *)value, (void *)extra);
	return error;
}

/* The functions of MPI_Keyval_create have the same types under other names. */
#define call_copy_function call_comm_copy_attr_function
#define call_delete_function call_comm_delete_attr_function
