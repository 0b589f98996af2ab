/* Sessions, in the way that the argument says: without MPI_Init, around MPI_Init and MPI_Finalize, inside of them, and one that
   is left open. Where they need not be, sessions are closed and opened again. */

#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <unistd.h>

static int handled, handled_class;
static MPI_Session handled_session;

static void handle(MPI_Session *session, int *code, ...)
{
	handled_session = *session;
	MPI_Error_class(*code, &handled_class);
	handled++;
}

static MPI_Session opened(void)
{
	MPI_Session session = MPI_SESSION_NULL;
	CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS && session != MPI_SESSION_NULL);
	return session;
}

static void closed(MPI_Session session)
{
	CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS && session == MPI_SESSION_NULL);
}

/* of returns a communicator of all processes, or of this one. */
static MPI_Comm of(MPI_Session session, const char *pset)
{
	MPI_Group group = MPI_GROUP_NULL;
	MPI_Comm comm = MPI_COMM_NULL;
	CHECK(MPI_Group_from_session_pset(session, pset, &group) == MPI_SUCCESS && group != MPI_GROUP_NULL);
	CHECK(MPI_Comm_create_from_group(group, "org.example.sessions", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
	MPI_Group_free(&group);
	return comm;
}

/* works has all processes of a session exchange messages. */
static void works(MPI_Session session)
{
	MPI_Comm comm = of(session, "mpi://WORLD"), self = of(session, "mpi://SELF");
	int sum = -1, in = -1, n = -1, self_size = -1;
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	MPI_Comm_size(self, &self_size);
	CHECK(self_size == 1);
	CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == size * (size - 1) / 2);
	MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 5, &in, 1, MPI_INT, (rank + size - 1) % size, 5, comm, MPI_STATUS_IGNORE);
	CHECK(in == (rank + size - 1) % size);
	CHECK(MPI_Session_finalize(&session) != MPI_SUCCESS); /* not before its communicators are freed */
	CHECK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n) == MPI_SUCCESS && n >= 2);
	MPI_Comm_free(&comm);
	MPI_Comm_free(&self);
}

/* buffered has messages of a session's communicators sent from the session's buffer. */
static void buffered(MPI_Session session)
{
#ifdef MPI_BUFFER_AUTOMATIC /* MPI-4.1 */
	static char memory[MPI_BSEND_OVERHEAD + 100];
	MPI_Comm self = of(session, "mpi://SELF");
	MPI_Request flushed = MPI_REQUEST_NULL;
	void *at = NULL;
	int in = 0, n = 0, out = 42;
	CHECK(MPI_Bsend(&out, 1, MPI_INT, 0, 1, self) != MPI_SUCCESS); /* there is no buffer */
	CHECK(MPI_Session_attach_buffer(session, memory, sizeof memory) == MPI_SUCCESS);
	CHECK(MPI_Bsend(&out, 1, MPI_INT, 0, 1, self) == MPI_SUCCESS);
	CHECK(MPI_Recv(&in, 1, MPI_INT, 0, 1, self, MPI_STATUS_IGNORE) == MPI_SUCCESS && in == 42);
	CHECK(MPI_Session_iflush_buffer(session, &flushed) == MPI_SUCCESS && flushed != MPI_REQUEST_NULL);
	CHECK(MPI_Wait(&flushed, MPI_STATUS_IGNORE) == MPI_SUCCESS && MPI_Session_flush_buffer(session) == MPI_SUCCESS);
	CHECK(MPI_Session_detach_buffer(session, &at, &n) == MPI_SUCCESS && at == memory && n == (int)sizeof memory);
	MPI_Comm_free(&self);
#else
	(void)session;
#endif
}

static void psets(MPI_Session session)
{
	MPI_Info info;
	int n = 0, i, length, flag = 0, world = 0, room = 20, class = -1;
	char name[MPI_MAX_OBJECT_NAME], value[20];
	MPI_Group none;
	MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n);
	for (i = 0; i < n; i++) {
		length = 0;
		CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, NULL) == MPI_SUCCESS && length > 1 && length < (int)sizeof name);
		CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name) == MPI_SUCCESS && (int)strlen(name) == length - 1);
		world += strcmp(name, "mpi://WORLD") == 0;
	}
	CHECK(world == 1);
	CHECK(MPI_Session_get_pset_info(session, "mpi://WORLD", &info) == MPI_SUCCESS);
	CHECK(MPI_Info_get_string(info, "mpi_size", &room, value, &flag) == MPI_SUCCESS && flag && atoi(value) == size);
	MPI_Info_free(&info);
	CHECK(MPI_Session_get_info(session, &info) == MPI_SUCCESS);
	room = 20;
	CHECK(MPI_Info_get_string(info, "thread_level", &room, value, &flag) == MPI_SUCCESS && flag && strcmp(value, "MPI_THREAD_MULTIPLE") == 0);
	MPI_Info_free(&info);
	CHECK(MPI_Group_from_session_pset(session, "mpi://MARS", &none) == MPI_SUCCESS && none == MPI_GROUP_NULL);
	MPI_Error_class(MPI_Session_get_pset_info(session, "mpi://MARS", &info), &class);
	CHECK(class == MPI_ERR_ARG);
}

static void handlers(void)
{
	MPI_Session session;
	MPI_Errhandler handler, got;
	MPI_Info info;
	CHECK(MPI_Session_create_errhandler(handle, &handler) == MPI_SUCCESS);
	CHECK(MPI_Session_init(MPI_INFO_NULL, handler, &session) == MPI_SUCCESS);
	CHECK(MPI_Session_get_errhandler(session, &got) == MPI_SUCCESS && got == handler);
	MPI_Errhandler_free(&got);
	MPI_Errhandler_free(&handler);
	CHECK(MPI_Session_get_pset_info(session, "mpi://MARS", &info) != MPI_SUCCESS);
	CHECK(handled == 1 && handled_session == session && handled_class == MPI_ERR_ARG);
	CHECK(MPI_Session_call_errhandler(session, MPI_ERR_TAG) == MPI_SUCCESS && handled == 2 && handled_class == MPI_ERR_TAG);
	CHECK(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN) == MPI_SUCCESS);
	CHECK(MPI_Session_get_pset_info(session, "mpi://MARS", &info) != MPI_SUCCESS && handled == 2);
	closed(session);
}

/* ends has the last process end while messages of its are not received yet: they arrive, as it leaves the world then. */
static void ends(MPI_Session session)
{
	enum { MESSAGES = 50 };
	MPI_Comm comm = of(session, "mpi://WORLD");
	int pid = (int)getpid(), i;
	if (size > 1 && rank == size - 1)
		for (i = 0; i < MESSAGES; i++)
			CHECK(MPI_Send(&pid, 1, MPI_INT, 0, i, comm) == MPI_SUCCESS);
	if (size > 1 && rank == 0)
		for (i = MESSAGES - 1; i >= 0; i--) {
			CHECK(MPI_Recv(&pid, 1, MPI_INT, size - 1, i, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS);
			while (i == MESSAGES - 1 && kill(pid, 0) == 0)
				usleep(1000);
		}
	MPI_Comm_free(&comm);
}

static int is(int (*asked)(int *))
{
	int flag = -1;
	CHECK(asked(&flag) == MPI_SUCCESS);
	return flag;
}

static void passed(void)
{
	if (rank == 0)
		printf("passed by %d\n", size);
}

int main(int argc, char **argv)
{
	const char *way = argv[1];
	MPI_Session first, second;
	if (strcmp(way, "alone") == 0) {
		int i;
		for (i = 0; i < 3; i++) {
			first = opened();
			second = opened();
			works(first);
			closed(first);
			works(second);
			psets(second);
			buffered(second);
			closed(second);
		}
		handlers();
		CHECK(!is(MPI_Initialized) && !is(MPI_Finalized));
		first = opened();
		ends(first);
		closed(first);
		passed();
		return 0;
	}
	if (strcmp(way, "around") == 0) {
		first = opened();
		works(first);
		begin(&argc, &argv);
		second = opened();
		works(second);
		MPI_Barrier(MPI_COMM_WORLD);
		closed(second);
		MPI_Finalize();
		CHECK(is(MPI_Initialized) && is(MPI_Finalized));
		works(first);
		second = opened();
		closed(first);
		works(second);
		closed(second);
		passed();
		return 0;
	}
	if (strcmp(way, "open") == 0) {
		opened();
		return 5;
	}
	begin(&argc, &argv); /* inside */
	first = opened();
	works(first);
	psets(first);
	closed(first);
	first = opened();
	closed(first);
	handlers();
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &second) == MPI_ERR_OTHER); /* the process has left the world */
	passed();
	return 0;
}
