/* Matching probes, and the status of requests that stay. */

#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

enum { LONG_MESSAGE = 30000 };

static int count_of(const MPI_Status *status, MPI_Datatype type)
{
	int n;
	MPI_Get_count(status, type, &n);
	return n;
}

/* A message that a probe took is received by its handle only. */
static void taken(void)
{
	int first = 1, second = 2, in = 0, found = 1;
	MPI_Request r[2];
	MPI_Message m;
	MPI_Status s;
	MPI_Comm same;
	MPI_Comm_dup(MPI_COMM_WORLD, &same);
	MPI_Improbe(rank, 3, MPI_COMM_WORLD, &found, &m, &s);
	CHECK(!found && m == MPI_MESSAGE_NULL);
	MPI_Isend(&first, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &r[0]);
	MPI_Isend(&second, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &r[1]);
	MPI_Mprobe(rank, 3, MPI_COMM_WORLD, &m, &s);
	CHECK(m != MPI_MESSAGE_NULL && m != MPI_MESSAGE_NO_PROC && s.MPI_SOURCE == rank && s.MPI_TAG == 3 && count_of(&s, MPI_INT) == 1);
	MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	CHECK(in == 2);
	MPI_Iprobe(rank, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
	CHECK(!found);
	MPI_Mrecv(&in, 1, MPI_INT, &m, &s);
	CHECK(in == 1 && m == MPI_MESSAGE_NULL && s.MPI_SOURCE == rank && s.MPI_TAG == 3 && count_of(&s, MPI_INT) == 1);
	MPI_Waitall(2, r, MPI_STATUSES_IGNORE);

	MPI_Send(&first, 1, MPI_INT, rank, 3, same);
	MPI_Improbe(rank, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &m, MPI_STATUS_IGNORE);
	CHECK(!found);
	while (!found)
		MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, same, &found, &m, MPI_STATUS_IGNORE);
	MPI_Mrecv(&in, 1, MPI_INT, &m, MPI_STATUS_IGNORE);
	MPI_Comm_free(&same);
}

/* Messages from all, short and long, into types with gaps, completed together with others. */
static void many(void)
{
	int *out = malloc(sizeof(int) * LONG_MESSAGE), *in = calloc((size_t)size * 2 * LONG_MESSAGE, sizeof(int)), pair[3] = {0}, sum = 0;
	MPI_Request *r = malloc(sizeof *r * 2 * (size_t)(size + 1));
	MPI_Status *s = malloc(sizeof *s * 2 * (size_t)(size + 1));
	MPI_Datatype spread, ends;
	MPI_Message m;
	MPI_Type_vector(LONG_MESSAGE, 1, 2, MPI_INT, &spread);
	MPI_Type_vector(2, 1, 2, MPI_INT, &ends);
	MPI_Type_commit(&spread), MPI_Type_commit(&ends);
	for (int i = 0; i < LONG_MESSAGE; i++)
		out[i] = rank * LONG_MESSAGE + i;
	for (int p = 0; p < size; p++)
		MPI_Isend(out, p % 2 ? LONG_MESSAGE : 1, MPI_INT, p, 4, MPI_COMM_WORLD, &r[size + p]);
	for (int p = 0; p < size; p++) {
		int n = rank % 2 ? LONG_MESSAGE : 1;
		MPI_Status probed;
		MPI_Mprobe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &m, &probed);
		CHECK(count_of(&probed, MPI_INT) == n);
		MPI_Imrecv(in + 2 * LONG_MESSAGE * probed.MPI_SOURCE, 1, spread, &m, &r[p]);
		CHECK(m == MPI_MESSAGE_NULL);
		sum += probed.MPI_SOURCE;
	}
	CHECK(sum == size * (size - 1) / 2);
	MPI_Irecv(pair, 1, ends, rank, 5, MPI_COMM_WORLD, &r[2 * size]);
	MPI_Isend(out, 2, MPI_INT, rank, 5, MPI_COMM_WORLD, &r[2 * size + 1]);
	MPI_Type_free(&spread), MPI_Type_free(&ends);
	CHECK(MPI_Waitall(2 * size + 2, r, s) == MPI_SUCCESS);
	CHECK(pair[0] == out[0] && pair[1] == 0 && pair[2] == out[1]);
	for (int p = 0; p < size; p++) {
		int *from = in + 2 * LONG_MESSAGE * p;
		CHECK(from[0] == p * LONG_MESSAGE && from[1] == 0);
		if (rank % 2)
			CHECK(from[2 * LONG_MESSAGE - 2] == p * LONG_MESSAGE + LONG_MESSAGE - 1);
		else
			CHECK(from[2] == 0);
	}
	free(out), free(in), free(r), free(s);
}

/* Probes of MPI_PROC_NULL find a message at once, which has no data. */
static void no_process(void)
{
	int in = 5, found = 0;
	MPI_Message m;
	MPI_Status s;
	MPI_Request r;
	MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &m, &s);
	CHECK(m == MPI_MESSAGE_NO_PROC && s.MPI_SOURCE == MPI_PROC_NULL && s.MPI_TAG == MPI_ANY_TAG && count_of(&s, MPI_INT) == 0);
	memset(&s, 0, sizeof s);
	MPI_Mrecv(&in, 1, MPI_INT, &m, &s);
	CHECK(m == MPI_MESSAGE_NULL && in == 5 && s.MPI_SOURCE == MPI_PROC_NULL && s.MPI_TAG == MPI_ANY_TAG && count_of(&s, MPI_INT) == 0);
	MPI_Improbe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &found, &m, &s);
	CHECK(found && m == MPI_MESSAGE_NO_PROC && s.MPI_SOURCE == MPI_PROC_NULL);
	memset(&s, 0, sizeof s);
	MPI_Imrecv(&in, 1, MPI_INT, &m, &r);
	CHECK(m == MPI_MESSAGE_NULL);
	MPI_Wait(&r, &s);
	CHECK(in == 5 && s.MPI_SOURCE == MPI_PROC_NULL && s.MPI_TAG == MPI_ANY_TAG && r == MPI_REQUEST_NULL);
}

static int class_of(int code)
{
	int class;
	MPI_Error_class(code, &class);
	return class;
}

static void mistakes(void)
{
	int out[2] = {1, 2}, in[2] = {0};
	MPI_Message m = MPI_MESSAGE_NULL;
	MPI_Request r;
	MPI_Errhandler old;
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &old);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(class_of(MPI_Mrecv(in, 1, MPI_INT, &m, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
	CHECK(class_of(MPI_Imrecv(in, 1, MPI_INT, &m, &r)) == MPI_ERR_REQUEST);
	CHECK(class_of(MPI_Mprobe(size, 0, MPI_COMM_WORLD, &m, MPI_STATUS_IGNORE)) == MPI_ERR_RANK);
	MPI_Send(out, 2, MPI_INT, rank, 6, MPI_COMM_WORLD);
	MPI_Mprobe(rank, 6, MPI_COMM_WORLD, &m, MPI_STATUS_IGNORE);
	CHECK(class_of(MPI_Mrecv(in, -1, MPI_INT, &m, MPI_STATUS_IGNORE)) == MPI_ERR_COUNT && m != MPI_MESSAGE_NULL);
	CHECK(class_of(MPI_Imrecv(in, 1, MPI_DATATYPE_NULL, &m, &r)) == MPI_ERR_TYPE && m != MPI_MESSAGE_NULL);
	CHECK(class_of(MPI_Mrecv(in, 1, MPI_INT, &m, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE && m == MPI_MESSAGE_NULL);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
}

static int is_empty(const MPI_Status *s)
{
	int cancelled;
	MPI_Test_cancelled(s, &cancelled);
	return s->MPI_SOURCE == MPI_ANY_SOURCE && s->MPI_TAG == MPI_ANY_TAG && count_of(s, MPI_INT) == 0 && !cancelled;
}

/* A request stays, with its status, however often it is asked for. */
static void one_status(void)
{
	int in = 0, flag = 0, cancelled = 0;
	MPI_Request r = MPI_REQUEST_NULL;
	MPI_Status s;
	MPI_Request_get_status(r, &flag, &s);
	CHECK(flag && is_empty(&s));
	MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &r);
	MPI_Request_get_status(r, &flag, &s);
	CHECK(!flag);
	MPI_Send(&size, 1, MPI_INT, rank, 7, MPI_COMM_WORLD);
	for (int times = 0; times < 2; times++) {
		flag = 0, memset(&s, 0, sizeof s);
		while (!flag)
			MPI_Request_get_status(r, &flag, &s);
		CHECK(in == size && s.MPI_SOURCE == rank && s.MPI_TAG == 7 && count_of(&s, MPI_INT) == 1 && r != MPI_REQUEST_NULL);
	}
	MPI_Request_get_status(r, &flag, MPI_STATUS_IGNORE);
	MPI_Wait(&r, &s);
	CHECK(s.MPI_TAG == 7 && r == MPI_REQUEST_NULL);
	MPI_Irecv(&in, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, &r);
	MPI_Cancel(&r);
	flag = 0;
	while (!flag)
		MPI_Request_get_status(r, &flag, &s);
	MPI_Test_cancelled(&s, &cancelled);
	CHECK(cancelled);
	MPI_Wait(&r, &s);
	MPI_Recv_init(&in, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, &r);
	MPI_Request_get_status(r, &flag, &s);
	CHECK(flag && is_empty(&s));
	MPI_Request_free(&r);
}

/* Functions that the header of an older standard lacks. */
static int (*get_status_any)(int, const MPI_Request[], int *, int *, MPI_Status *);
static int (*get_status_all)(int, const MPI_Request[], int *, MPI_Status *);
static int (*get_status_some)(int, const MPI_Request[], int *, int *, MPI_Status *);

static void statuses(void)
{
	int in[2] = {0}, out[2] = {1, 2}, flag = 1, i = 0, n = -1, indices[3];
	MPI_Request r[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
	MPI_Status s[3];
	MPI_Errhandler old;
	*(void **)&get_status_any = dlsym(RTLD_DEFAULT, "MPI_Request_get_status_any");
	*(void **)&get_status_all = dlsym(RTLD_DEFAULT, "MPI_Request_get_status_all");
	*(void **)&get_status_some = dlsym(RTLD_DEFAULT, "MPI_Request_get_status_some");
	CHECK(get_status_any && get_status_all && get_status_some);

	flag = 0, get_status_any(3, r, &i, &flag, s);
	CHECK(flag && i == MPI_UNDEFINED && is_empty(s));
	get_status_some(3, r, &n, indices, s);
	CHECK(n == MPI_UNDEFINED);
	flag = 0, get_status_all(3, r, &flag, s);
	CHECK(flag && is_empty(&s[2]));
	flag = 0, get_status_all(0, NULL, &flag, s);
	CHECK(flag);

	MPI_Recv_init(in, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, &r[1]);
	MPI_Irecv(in, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &r[2]);
	flag = 1, i = 0, get_status_any(3, r, &i, &flag, s);
	CHECK(!flag && i == MPI_UNDEFINED);
	flag = 1, get_status_all(3, r, &flag, s);
	CHECK(!flag);
	get_status_some(3, r, &n, indices, s);
	CHECK(n == 0);
	MPI_Send(out, 1, MPI_INT, rank, 9, MPI_COMM_WORLD);
	do {
		get_status_any(3, r, &i, &flag, s);
	} while (!flag);
	CHECK(i == 2 && s[0].MPI_TAG == 9);
	get_status_all(3, r, &flag, s);
	CHECK(flag && is_empty(&s[0]) && is_empty(&s[1]) && s[2].MPI_TAG == 9);
	get_status_some(3, r, &n, indices, s);
	CHECK(n == 1 && indices[0] == 2 && s[0].MPI_TAG == 9);
	get_status_some(3, r, &n, indices, MPI_STATUSES_IGNORE);
	CHECK(n == 1 && r[2] != MPI_REQUEST_NULL);
	MPI_Wait(&r[2], MPI_STATUS_IGNORE);
	CHECK(in[0] == 1);

	/* Errors are reported as often as they are asked for. */
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &old);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Irecv(in, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &r[2]);
	MPI_Send(out, 2, MPI_INT, rank, 9, MPI_COMM_WORLD);
	do {
		n = class_of(get_status_any(3, r, &i, &flag, s));
	} while (!flag);
	CHECK(n == MPI_ERR_TRUNCATE && i == 2);
	CHECK(class_of(get_status_some(3, r, &n, indices, s)) == MPI_ERR_IN_STATUS && n == 1 && class_of(s[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
	CHECK(class_of(get_status_all(3, r, &flag, s)) == MPI_ERR_IN_STATUS && flag && s[0].MPI_ERROR == MPI_SUCCESS && class_of(s[2].MPI_ERROR) == MPI_ERR_TRUNCATE);
	CHECK(class_of(MPI_Request_get_status(r[2], &flag, s)) == MPI_ERR_TRUNCATE && flag);
	CHECK(class_of(MPI_Wait(&r[2], s)) == MPI_ERR_TRUNCATE && r[2] == MPI_REQUEST_NULL);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
	MPI_Request_free(&r[1]);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	taken();
	many();
	no_process();
	mistakes();
	one_status();
	if (MPI_VERSION >= 4)
		statuses();
	return finish();
}
