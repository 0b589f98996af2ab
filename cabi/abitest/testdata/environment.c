/* Infos, error classes and the tools interface. */

#include "check.h"

static void infos(void)
{
	MPI_Info info, copied;
	char key[MPI_MAX_INFO_KEY], value[20];
	int n = 0, flag = 0, room = sizeof value;
	CHECK(MPI_Info_create(&info) == MPI_SUCCESS && info != MPI_INFO_NULL);
	MPI_Info_set(info, "host", "there");
	MPI_Info_set(info, "wdir", "/tmp");
	MPI_Info_dup(info, &copied);
	MPI_Info_delete(info, "host");
	CHECK(MPI_Info_get_nkeys(info, &n) == MPI_SUCCESS && n == 1);
	CHECK(MPI_Info_get_nthkey(info, 0, key) == MPI_SUCCESS && strcmp(key, "wdir") == 0);
#if MPI_VERSION >= 4
	CHECK(MPI_Info_get_string(copied, "host", &room, value, &flag) == MPI_SUCCESS && flag && room == 6 && strcmp(value, "there") == 0);
#endif
	CHECK(MPI_Info_get_valuelen(copied, "host", &room, &flag) == MPI_SUCCESS && flag && room == 5);
	CHECK(MPI_Info_get(copied, "none", 19, value, &flag) == MPI_SUCCESS && !flag);
	CHECK(MPI_Info_free(&info) == MPI_SUCCESS && info == MPI_INFO_NULL);
	MPI_Info_free(&copied);
}

static void errors(void)
{
	int class, code, of, length;
	char text[MPI_MAX_ERROR_STRING];
	MPI_Add_error_class(&class);
	MPI_Add_error_code(class, &code);
	MPI_Add_error_string(code, "no luck");
	CHECK(class > MPI_ERR_LASTCODE && code > class);
	CHECK(MPI_Error_class(code, &of) == MPI_SUCCESS && of == class);
	CHECK(MPI_Error_string(code, text, &length) == MPI_SUCCESS && length == 7 && strcmp(text, "no luck") == 0);
}

static MPI_Comm handled;
static int handled_class, handled_times;

static void handle(MPI_Comm *comm, int *code, ...)
{
	handled = *comm;
	MPI_Error_class(*code, &handled_class);
	handled_times++;
}

static void handlers(void)
{
	MPI_Errhandler handler, got;
	MPI_Comm comm;
	int class, error;
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	CHECK(MPI_Comm_create_errhandler(handle, &handler) == MPI_SUCCESS);
	CHECK(MPI_Comm_set_errhandler(comm, handler) == MPI_SUCCESS);
	CHECK(MPI_Comm_get_errhandler(comm, &got) == MPI_SUCCESS && got == handler);
	CHECK(MPI_Errhandler_free(&got) == MPI_SUCCESS && MPI_Errhandler_free(&handler) == MPI_SUCCESS && handler == MPI_ERRHANDLER_NULL);
	error = MPI_Send(&class, 1, MPI_INT, size, 0, comm);
	MPI_Error_class(error, &class);
	CHECK(class == MPI_ERR_RANK && handled_class == MPI_ERR_RANK && handled == comm && handled_times == 1);
	CHECK(MPI_Comm_call_errhandler(comm, MPI_ERR_TAG) == MPI_SUCCESS);
	CHECK(handled_class == MPI_ERR_TAG && handled_times == 2);
	MPI_Comm_free(&comm);
}

static void handle_win(MPI_Win *win, int *code, ...)
{
	(void)win, (void)code;
	CHECK(0);
}

/* Keys and error handlers of windows can be made without one. */
static void windows(void)
{
	MPI_Errhandler handler;
	int key = MPI_KEYVAL_INVALID;
	CHECK(MPI_Win_create_errhandler(handle_win, &handler) == MPI_SUCCESS && handler != MPI_ERRHANDLER_NULL);
	CHECK(MPI_Errhandler_free(&handler) == MPI_SUCCESS && handler == MPI_ERRHANDLER_NULL);
	CHECK(MPI_Win_create_keyval(MPI_WIN_DUP_FN, MPI_WIN_NULL_DELETE_FN, &key, NULL) == MPI_SUCCESS && key != MPI_KEYVAL_INVALID);
	CHECK(MPI_Win_free_keyval(&key) == MPI_SUCCESS && key == MPI_KEYVAL_INVALID);
}

static void tools(void)
{
	int n = -1, provided = -1;
	CHECK(MPI_T_cvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
	CHECK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
	CHECK(MPI_T_cvar_get_num(&n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_T_cvar_get_index("x", &n) == MPI_T_ERR_INVALID_NAME);
	CHECK(MPI_T_finalize() == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	int initialized = -1, finalized = -1, result;
	infos(); /* may be called before MPI_Init */
	tools();
	MPI_Initialized(&initialized);
	CHECK(initialized == 0);
	begin(&argc, &argv);
	MPI_Initialized(&initialized);
	MPI_Finalized(&finalized);
	CHECK(initialized == 1 && finalized == 0);
	infos();
	errors();
	handlers();
	windows();
	result = finish();
	MPI_Initialized(&initialized);
	MPI_Finalized(&finalized);
	return initialized == 1 && finalized == 1 ? result : 4;
}
