/* Generalized requests: the program does the work, here in threads or in the functions that MPI calls. */

#include "check.h"
#include <pthread.h>

static __thread int caller; /* set while this thread calls MPI for a request */

/* What a request is for, and what MPI called. */
struct work {
	MPI_Request request;
	int number, queries, frees, cancels, was_complete, completes_on_cancel, error;
};

static int class_of(int code)
{
	int class;
	MPI_Error_class(code, &class);
	return class;
}

static int query(void *extra, MPI_Status *status)
{
	struct work *w = extra;
	CHECK(caller && w->frees == 0);
	w->queries++;
	status->MPI_SOURCE = MPI_PROC_NULL, status->MPI_TAG = w->number;
	MPI_Status_set_elements(status, MPI_DOUBLE, 3);
	MPI_Status_set_cancelled(status, w->cancels > 0);
	return MPI_SUCCESS;
}

static int release(void *extra)
{
	struct work *w = extra;
	CHECK(caller);
	w->frees++;
	return w->error;
}

static int cancel(void *extra, int complete)
{
	struct work *w = extra;
	CHECK(caller);
	w->cancels++, w->was_complete = complete;
	if (w->completes_on_cancel)
		CHECK(MPI_Grequest_complete(w->request) == MPI_SUCCESS);
	return MPI_SUCCESS;
}

static MPI_Request start(struct work *w, int number)
{
	memset(w, 0, sizeof *w);
	w->number = number;
	CHECK(MPI_Grequest_start(query, release, cancel, w, &w->request) == MPI_SUCCESS);
	return w->request;
}

static int is_described(const MPI_Status *s, int number, int cancelled)
{
	int n, flag;
	MPI_Get_count(s, MPI_DOUBLE, &n);
	MPI_Test_cancelled(s, &flag);
	return s->MPI_SOURCE == MPI_PROC_NULL && s->MPI_TAG == number && n == 3 && flag == cancelled;
}

static void *complete(void *extra)
{
	struct work *w = extra;
	CHECK(MPI_Grequest_complete(w->request) == MPI_SUCCESS);
	return NULL;
}

static void single(void)
{
	struct work w;
	MPI_Status s;
	MPI_Request r = start(&w, 5);
	pthread_t thread;
	int flag = 1;
	MPI_Test(&r, &flag, &s);
	CHECK(!flag);
	MPI_Request_get_status(r, &flag, &s);
	CHECK(!flag && w.queries == 0);
	pthread_create(&thread, NULL, complete, &w);
	s.MPI_ERROR = 1234;
	CHECK(MPI_Wait(&r, &s) == MPI_SUCCESS && is_described(&s, 5, 0) && s.MPI_ERROR == 1234);
	pthread_join(thread, NULL);
	CHECK(r == MPI_REQUEST_NULL && w.queries == 1 && w.frees == 1 && w.cancels == 0);

	r = start(&w, 6);
	MPI_Grequest_complete(r);
	MPI_Request_get_status(r, &flag, &s);
	CHECK(flag && is_described(&s, 6, 0) && w.queries == 1 && w.frees == 0 && r != MPI_REQUEST_NULL);
	MPI_Cancel(&r);
	CHECK(w.cancels == 1 && w.was_complete);
	MPI_Test(&r, &flag, MPI_STATUS_IGNORE);
	CHECK(flag && w.queries == 2 && w.frees == 1 && r == MPI_REQUEST_NULL);

	r = start(&w, 7);
	w.completes_on_cancel = 1;
	MPI_Cancel(&r);
	CHECK(w.cancels == 1 && !w.was_complete);
	MPI_Wait(&r, &s);
	CHECK(is_described(&s, 7, 1) && w.frees == 1);

	/* Freed by the second of two: the program's handle stays valid for the other. */
	r = start(&w, 8);
	MPI_Request_free(&r);
	CHECK(r == MPI_REQUEST_NULL && w.frees == 0);
	MPI_Grequest_complete(w.request);
	CHECK(w.frees == 1 && w.queries == 0);
	r = start(&w, 9);
	MPI_Grequest_complete(r);
	MPI_Request_free(&r);
	CHECK(r == MPI_REQUEST_NULL && w.frees == 1 && w.queries == 0);
}

enum { MIXED = 6 };

/* Among messages, in every call for several. */
static void mixed(void)
{
	struct work w[3];
	int x[3] = {-1, -1, -1}, index, n, flag, indices[MIXED], seen = 0, to = (rank + 1) % size, from = (rank + size - 1) % size;
	MPI_Request r[MIXED];
	MPI_Status s[MIXED];
	pthread_t thread;
	for (int i = 0; i < 3; i++) {
		r[2 * i] = start(&w[i], i);
		MPI_Irecv(&x[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &r[2 * i + 1]);
	}
	MPI_Testany(MIXED, r, &index, &flag, MPI_STATUS_IGNORE);
	CHECK(!flag);
	pthread_create(&thread, NULL, complete, &w[1]);
	MPI_Waitany(MIXED, r, &index, s);
	CHECK(index == 2 && is_described(s, 1, 0) && r[2] == MPI_REQUEST_NULL && w[1].frees == 1);
	pthread_join(thread, NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Send(&rank, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
	MPI_Waitany(MIXED, r, &index, s);
	CHECK(index == 1 && x[0] == from);
	MPI_Testsome(MIXED, r, &n, indices, s);
	CHECK(n == 0);
	MPI_Grequest_complete(w[0].request);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Send(&rank, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
	while (seen < 2) {
		MPI_Waitsome(MIXED, r, &n, indices, s);
		for (int i = 0; i < n; i++)
			CHECK(indices[i] == 0 ? is_described(&s[i], 0, 0) : indices[i] == 3 && s[i].MPI_SOURCE == from);
		seen += n;
	}
	CHECK(r[0] == MPI_REQUEST_NULL && r[3] == MPI_REQUEST_NULL && x[1] == from);
	MPI_Testall(MIXED, r, &flag, s);
	CHECK(!flag);
	pthread_create(&thread, NULL, complete, &w[2]);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Send(&rank, 1, MPI_INT, to, 2, MPI_COMM_WORLD);
	MPI_Waitall(MIXED, r, s);
	pthread_join(thread, NULL);
	CHECK(is_described(&s[4], 2, 0) && s[5].MPI_SOURCE == from && x[2] == from && s[0].MPI_SOURCE == MPI_ANY_SOURCE);
	for (int i = 0; i < 3; i++)
		CHECK(w[i].queries == 1 && w[i].frees == 1 && w[i].cancels == 0);
}

static void sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
	int *a = in, *b = inout;
	(void)type;
	for (int i = 0; i < *n; i++)
		b[i] += a[i];
}

/* While an operation of the program's is pending, calls are made elsewhere, but the functions are called here. */
static void beside_operations(void)
{
	int x = rank, all = 0, flag = 0;
	struct work w;
	MPI_Op op;
	MPI_Request reduction, r = start(&w, 3);
	MPI_Op_create(sum, 1, &op);
	MPI_Iallreduce(&x, &all, 1, MPI_INT, op, MPI_COMM_WORLD, &reduction);
	MPI_Grequest_complete(r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	CHECK(w.queries == 1 && w.frees == 1);
	while (!flag)
		MPI_Test(&reduction, &flag, MPI_STATUS_IGNORE);
	CHECK(all == size * (size - 1) / 2);
	MPI_Op_free(&op);
}

static void mistakes(void)
{
	struct work w[2];
	int class, code, flag;
	MPI_Request r[2], message;
	MPI_Status s[2];
	MPI_Errhandler old;
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &old);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(class_of(MPI_Grequest_complete(MPI_REQUEST_NULL)) == MPI_ERR_REQUEST);
	MPI_Irecv(&flag, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message);
	CHECK(class_of(MPI_Grequest_complete(message)) == MPI_ERR_REQUEST);
	MPI_Wait(&message, MPI_STATUS_IGNORE);
	MPI_Add_error_class(&class);
	MPI_Add_error_code(class, &code);
	r[0] = start(&w[0], 0), r[1] = start(&w[1], 1);
	w[0].error = code, w[1].error = MPI_ERR_FILE;
	MPI_Grequest_complete(r[0]), MPI_Grequest_complete(r[1]);
	CHECK(class_of(MPI_Grequest_complete(r[0])) == MPI_ERR_REQUEST);
	CHECK(MPI_Waitall(2, r, s) == MPI_ERR_IN_STATUS && s[0].MPI_ERROR == code && class_of(s[1].MPI_ERROR) == MPI_ERR_FILE);
	CHECK(r[0] == MPI_REQUEST_NULL && r[1] == MPI_REQUEST_NULL);
	r[0] = start(&w[0], 0), w[0].error = code;
	MPI_Grequest_complete(r[0]);
	CHECK(MPI_Wait(&r[0], MPI_STATUS_IGNORE) == code);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
}

int main(int argc, char **argv)
{
	int provided;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	caller = 1;
	single();
	mixed();
	beside_operations();
	mistakes();
	return finish();
}
