/* The tools interface, which has no variables and events, before, while and after MPI runs. */

#include "check.h"

static void dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void *data)
{
	(void)count, (void)registration, (void)source, (void)safety, (void)data;
	CHECK(0);
}

static void variables(void)
{
	int n = -1, provided = -1, value = 0;
	char name[20];
	MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL, none = MPI_T_PVAR_SESSION_NULL;
	MPI_T_cvar_handle cvar = MPI_T_CVAR_HANDLE_NULL;
	MPI_T_pvar_handle pvar = MPI_T_PVAR_HANDLE_NULL;
	CHECK(MPI_T_cvar_get_info(0, name, &n, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_NOT_INITIALIZED);
	CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
	CHECK(MPI_T_cvar_get_num(&n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_T_pvar_get_num(&n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_T_category_get_num(&n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_T_category_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_cvar_get_info(0, name, &n, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_cvar_handle_alloc(0, NULL, &cvar, &n) == MPI_T_ERR_INVALID_INDEX && cvar == MPI_T_CVAR_HANDLE_NULL);
	CHECK(MPI_T_cvar_read(cvar, &value) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_cvar_write(cvar, &value) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_cvar_handle_free(&cvar) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_enum_get_info(MPI_T_ENUM_NULL, &n, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_enum_get_item(MPI_T_ENUM_NULL, 0, &n, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_pvar_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS && session != MPI_T_PVAR_SESSION_NULL);
	CHECK(MPI_T_pvar_handle_alloc(session, 0, NULL, &pvar, &n) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_pvar_handle_alloc(none, 0, NULL, &pvar, &n) == MPI_T_ERR_INVALID_SESSION);
	CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
	CHECK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
	CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
	CHECK(MPI_T_pvar_start(none, MPI_T_PVAR_ALL_HANDLES) == MPI_T_ERR_INVALID_SESSION);
	CHECK(MPI_T_pvar_start(session, pvar) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_pvar_read(session, pvar, &value) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_pvar_readreset(session, pvar, &value) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_pvar_write(session, pvar, &value) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_pvar_handle_free(session, &pvar) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS && session == MPI_T_PVAR_SESSION_NULL);
}

static void events(void)
{
	MPI_T_event_registration registration = NULL;
	MPI_T_event_instance instance = NULL;
	MPI_Info info = MPI_INFO_NULL;
	MPI_Count ticks;
	int n = -1, value = 0;
	CHECK(MPI_T_event_get_num(&n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_T_source_get_num(&n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_T_source_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_source_get_timestamp(0, &ticks) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_event_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration) == MPI_T_ERR_INVALID_INDEX);
	CHECK(MPI_T_event_handle_set_info(registration, MPI_INFO_NULL) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_handle_get_info(registration, &info) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_callback_set_info(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_callback_get_info(registration, MPI_T_CB_REQUIRE_NONE, &info) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_set_dropped_handler(registration, dropped) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_handle_free(registration, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_read(instance, 0, &value) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_copy(instance, &value) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_get_timestamp(instance, &ticks) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_event_get_source(instance, &n) == MPI_T_ERR_INVALID_HANDLE);
	CHECK(MPI_T_finalize() == MPI_SUCCESS);
	CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
}

int main(int argc, char **argv)
{
	int result;
	variables();
	events();
	begin(&argc, &argv);
	variables();
	events();
	result = finish();
	variables();
	events();
	return result;
}
