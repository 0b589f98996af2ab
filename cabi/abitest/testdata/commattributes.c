/* Attributes of communicators: their keys' functions, at duplication and the end, and those of the standard's. */

#include "check.h"

static int deleted[16], deletions, copies;
static MPI_Comm parent;

/* The class of an error code. */
static int class(int code)
{
	int c = -1;
	MPI_Error_class(code, &c);
	return c;
}

/* copy gives a duplicate the next value, except for a 3, and fails for a 7. */
static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *keep)
{
	int result = MPI_UNEQUAL;
	(void)key;
	copies++;
	MPI_Comm_compare(comm, parent, &result);
	CHECK(result == MPI_IDENT);
	*keep = *(int *)in != 3;
	*(int **)out = (int *)in + *(int *)extra;
	return *(int *)in == 7 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

/* delete notes values, and fails for a 9. It may call MPI. */
static int delete(MPI_Comm comm, int key, void *value, void *extra)
{
	int n = 0;
	(void)key, (void)extra;
	CHECK(MPI_Comm_size(comm, &n) == MPI_SUCCESS && n > 0);
	deleted[deletions++] = *(int *)value;
	return *(int *)value == 9 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

/* has returns the value of a key of comm, and NULL for none. */
static int *has(MPI_Comm comm, int key)
{
	int *value = NULL, flag = -1;
	CHECK(MPI_Comm_get_attr(comm, key, &value, &flag) == MPI_SUCCESS && (flag == 0 || flag == 1));
	return flag ? value : NULL;
}

static int values[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, step = 1;

static void test_duplicates(void)
{
	int own, shared, none, lost, *got, flag;
	MPI_Comm comm, split;
	MPI_Comm_dup(MPI_COMM_WORLD, &parent);
	CHECK(MPI_Comm_create_keyval(copy, delete, &own, &step) == MPI_SUCCESS && own != MPI_KEYVAL_INVALID);
	MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &shared, NULL);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &none, NULL);
	MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &lost, &step);
	CHECK(!has(parent, own) && own != shared);
	MPI_Comm_set_attr(parent, own, &values[1]);
	MPI_Comm_set_attr(parent, shared, &values[4]);
	MPI_Comm_set_attr(parent, none, &values[5]);
	MPI_Comm_set_attr(parent, lost, &values[3]);
	CHECK(has(parent, own) == &values[1] && !has(MPI_COMM_WORLD, own));
	CHECK(MPI_Comm_dup(parent, &comm) == MPI_SUCCESS && copies == 2 && deletions == 0);
	CHECK(has(comm, own) == &values[2] && has(comm, shared) == &values[4] && !has(comm, none) && !has(comm, lost));
	CHECK(MPI_Comm_set_attr(comm, own, &values[6]) == MPI_SUCCESS && deletions == 1 && deleted[0] == 2);
	CHECK(has(comm, own) == &values[6] && has(parent, own) == &values[1]);
	CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS && deletions == 2 && deleted[1] == 6);
	CHECK(MPI_Comm_dup_with_info(parent, MPI_INFO_NULL, &comm) == MPI_SUCCESS && has(comm, own) == &values[2] && copies == 4);
	MPI_Comm_free(&comm);
	CHECK(MPI_Comm_split(parent, 0, 0, &split) == MPI_SUCCESS && copies == 4 && !has(split, own));
	MPI_Comm_free(&split);
	CHECK(MPI_Comm_delete_attr(parent, none) == MPI_SUCCESS && deletions == 4 && deleted[3] == 5 && !has(parent, none));
	flag = shared;
	CHECK(MPI_Comm_free_keyval(&shared) == MPI_SUCCESS && shared == MPI_KEYVAL_INVALID);
	MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
	CHECK(class(MPI_Comm_get_attr(parent, flag, &got, &flag)) == MPI_ERR_KEYVAL);
	CHECK(MPI_Comm_free_keyval(&own) == MPI_SUCCESS && MPI_Comm_free_keyval(&none) == MPI_SUCCESS && MPI_Comm_free_keyval(&lost) == MPI_SUCCESS);
	CHECK(deletions == 4 && MPI_Comm_free(&parent) == MPI_SUCCESS && deletions == 5 && deleted[4] == 1);
}

/* Attributes are those of the time of the call. */
static void test_idup(void)
{
	int key;
	MPI_Comm comm = MPI_COMM_NULL;
	MPI_Request request;
	copies = deletions = 0;
	MPI_Comm_dup(MPI_COMM_WORLD, &parent);
	MPI_Comm_create_keyval(copy, delete, &key, &step);
	MPI_Comm_set_attr(parent, key, &values[1]);
	CHECK(MPI_Comm_idup(parent, &comm, &request) == MPI_SUCCESS && copies == 1);
	MPI_Comm_set_attr(parent, key, &values[5]);
	CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && has(comm, key) == &values[2]);
	MPI_Comm_free(&parent);
	parent = comm;
	CHECK(MPI_Comm_dup(parent, &comm) == MPI_SUCCESS && copies == 2 && has(comm, key) == &values[3]);
	MPI_Comm_free(&comm);
	MPI_Comm_free(&parent);
	MPI_Comm_free_keyval(&key);
}

/* A copy that fails on one process fails the duplication on all; what cannot be deleted stays, with its communicator. */
static void test_failures(void)
{
	int key, invalid = MPI_KEYVAL_INVALID, code;
	MPI_Comm comm = MPI_COMM_NULL;
	copies = deletions = 0;
	MPI_Comm_dup(MPI_COMM_WORLD, &parent);
	MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_create_keyval(copy, delete, &key, &step);
	MPI_Comm_set_attr(parent, key, &values[rank == size - 1 ? 7 : 1]);
	code = MPI_Comm_dup(parent, &comm);
	CHECK(code != MPI_SUCCESS && copies == 1 && (rank < size - 1 || class(code) == MPI_ERR_OTHER));
	MPI_Comm_set_attr(parent, key, &values[9]);
	CHECK(class(MPI_Comm_set_attr(parent, key, &values[1])) == MPI_ERR_OTHER && has(parent, key) == &values[9]);
	CHECK(class(MPI_Comm_delete_attr(parent, key)) == MPI_ERR_OTHER && has(parent, key) == &values[9]);
	CHECK(MPI_Comm_free(&parent) != MPI_SUCCESS && parent != MPI_COMM_NULL && has(parent, key) == &values[9]);
	values[9] = 8;
	CHECK(MPI_Comm_free(&parent) == MPI_SUCCESS && parent == MPI_COMM_NULL);
	values[9] = 9;
	CHECK(class(MPI_Comm_set_attr(MPI_COMM_NULL, key, NULL)) == MPI_ERR_COMM);
	CHECK(class(MPI_Comm_set_attr(MPI_COMM_WORLD, invalid, NULL)) == MPI_ERR_KEYVAL);
	CHECK(class(MPI_Comm_delete_attr(MPI_COMM_WORLD, invalid)) == MPI_ERR_KEYVAL);
	CHECK(class(MPI_Comm_free_keyval(&invalid)) == MPI_ERR_KEYVAL);
	MPI_Comm_free_keyval(&key);
}

static void test_predefined(void)
{
	const int fixed[] = {MPI_TAG_UB, MPI_IO, MPI_HOST, MPI_WTIME_IS_GLOBAL, MPI_APPNUM, MPI_LASTUSEDCODE, MPI_UNIVERSE_SIZE};
	int *tags = has(MPI_COMM_WORLD, MPI_TAG_UB), *io = has(MPI_COMM_WORLD, MPI_IO), *host = has(MPI_COMM_WORLD, MPI_HOST);
	int *global = has(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL), *last = has(MPI_COMM_WORLD, MPI_LASTUSEDCODE), added, i;
	MPI_Comm comm;
	CHECK(tags && *tags >= 32767 && io && *io == MPI_ANY_SOURCE && host && *host == MPI_PROC_NULL && global && *global == 0);
	CHECK(last && *last == MPI_ERR_LASTCODE && !has(MPI_COMM_WORLD, MPI_APPNUM));
	MPI_Add_error_class(&added);
	last = has(MPI_COMM_WORLD, MPI_LASTUSEDCODE);
	CHECK(last && *last == added);
	for (i = 0; i < 7; i++) {
		int key = fixed[i];
		CHECK(class(MPI_Comm_set_attr(MPI_COMM_WORLD, key, NULL)) == MPI_ERR_KEYVAL);
		CHECK(class(MPI_Comm_delete_attr(MPI_COMM_WORLD, key)) == MPI_ERR_KEYVAL);
		CHECK(class(MPI_Comm_free_keyval(&key)) == MPI_ERR_KEYVAL && key == fixed[i]);
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	CHECK(has(comm, MPI_TAG_UB) && *has(comm, MPI_TAG_UB) == *tags);
	MPI_Send(NULL, 0, MPI_INT, MPI_PROC_NULL, *tags, comm);
	MPI_Comm_free(&comm);
}

/* The old names; their keys are those of the new ones, too. */
static void test_deprecated(void)
{
	int key, shared, none, *got = NULL, flag = -1;
	MPI_Comm comm;
	copies = deletions = 0;
	MPI_Comm_dup(MPI_COMM_WORLD, &parent);
	CHECK(MPI_Keyval_create(copy, delete, &key, &step) == MPI_SUCCESS);
	CHECK(MPI_Keyval_create(MPI_DUP_FN, MPI_NULL_DELETE_FN, &shared, NULL) == MPI_SUCCESS);
	CHECK(MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, &none, NULL) == MPI_SUCCESS);
	CHECK(MPI_Attr_get(parent, key, &got, &flag) == MPI_SUCCESS && !flag);
	CHECK(MPI_Attr_put(parent, key, &values[1]) == MPI_SUCCESS && has(parent, key) == &values[1]);
	CHECK(MPI_Attr_put(parent, shared, &values[2]) == MPI_SUCCESS && MPI_Attr_put(parent, none, &values[2]) == MPI_SUCCESS);
	CHECK(MPI_Comm_dup(parent, &comm) == MPI_SUCCESS && copies == 1);
	CHECK(MPI_Attr_get(comm, key, &got, &flag) == MPI_SUCCESS && flag && got == &values[2]);
	CHECK(MPI_Attr_get(comm, shared, &got, &flag) == MPI_SUCCESS && flag && got == &values[2]);
	CHECK(MPI_Attr_get(comm, none, &got, &flag) == MPI_SUCCESS && !flag);
	CHECK(MPI_Attr_delete(comm, key) == MPI_SUCCESS && deletions == 1 && deleted[0] == 2);
	CHECK(MPI_Attr_get(MPI_COMM_WORLD, MPI_IO, &got, &flag) == MPI_SUCCESS && flag && *got == MPI_ANY_SOURCE);
	MPI_Comm_free(&comm);
	MPI_Comm_free(&parent);
	CHECK(MPI_Keyval_free(&key) == MPI_SUCCESS && key == MPI_KEYVAL_INVALID);
	CHECK(class(MPI_Attr_get(MPI_COMM_WORLD, key, &got, &flag)) == MPI_ERR_KEYVAL);
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first, the last one set first, while MPI works. */
static int ending;

static int at_end(MPI_Comm comm, int key, void *value, void *extra)
{
	int finalized = -1, out = *(int *)value, in = -1;
	(void)key, (void)extra;
	CHECK(ending++ == *(int *)value);
	CHECK(MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized);
	CHECK(MPI_Allreduce(&out, &in, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && in == out);
	if (ending == 3 && rank == 0)
		printf("passed by %d\n", size);
	return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
	int i, key;
	begin(&argc, &argv);
	test_duplicates();
	test_idup();
	test_failures();
	test_predefined();
	test_deprecated();
	for (i = 2; i >= 0; i--) {
		MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &key, NULL);
		MPI_Comm_set_attr(MPI_COMM_SELF, key, &values[i]);
		MPI_Comm_free_keyval(&key);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	CHECK(ending == 3);
	return 0;
}
