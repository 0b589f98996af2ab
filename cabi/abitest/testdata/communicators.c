/* Communicators: of groups, duplicates that are waited for, two groups, names. */

#include "check.h"

/* The class of an error code. */
static int class(int code)
{
	int c = -1;
	MPI_Error_class(code, &c);
	return c;
}

/* works checks that comm has n processes, of which this is the one with rank r, and that their messages arrive. */
static void works(MPI_Comm comm, int n, int r)
{
	int members = -1, mine = -1, sum = -1, in = -1;
	CHECK(MPI_Comm_size(comm, &members) == MPI_SUCCESS && members == n);
	CHECK(MPI_Comm_rank(comm, &mine) == MPI_SUCCESS && mine == r);
	CHECK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == n * (n - 1) / 2);
	MPI_Sendrecv(&mine, 1, MPI_INT, (r + 1) % n, 5, &in, 1, MPI_INT, (r + n - 1) % n, 5, comm, MPI_STATUS_IGNORE);
	CHECK(in == (r + n - 1) % n);
}

static int compared(MPI_Comm a, MPI_Comm b)
{
	int result = -1;
	CHECK(MPI_Comm_compare(a, b, &result) == MPI_SUCCESS);
	return result;
}

/* part returns the group of the ranks first, first + step, ... of the world. */
static MPI_Group part(int first, int step)
{
	int range[1][3] = {{first, size - 1, step}};
	MPI_Group world, g = MPI_GROUP_EMPTY;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	if (first < size)
		CHECK(MPI_Group_range_incl(world, 1, range, &g) == MPI_SUCCESS);
	MPI_Group_free(&world);
	return g;
}

static void test_create(void)
{
	MPI_Group even = part(0, 2), mine = part(rank % 2, 2), none = MPI_GROUP_EMPTY;
	MPI_Comm comm = MPI_COMM_WORLD, other;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(MPI_Comm_create(MPI_COMM_WORLD, even, &comm) == MPI_SUCCESS);
	if (rank % 2 == 0) {
		MPI_Errhandler handler;
		works(comm, (size + 1) / 2, rank / 2);
		MPI_Comm_get_errhandler(comm, &handler);
		CHECK(handler == MPI_ERRORS_RETURN);
		MPI_Comm_free(&comm);
	}
	CHECK(comm == MPI_COMM_NULL);
	CHECK(MPI_Comm_create(MPI_COMM_WORLD, mine, &comm) == MPI_SUCCESS); /* two at once */
	works(comm, (size + 1 - rank % 2) / 2, rank / 2);
	CHECK(MPI_Comm_create(MPI_COMM_WORLD, none, &other) == MPI_SUCCESS && other == MPI_COMM_NULL);
	CHECK(class(MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_NULL, &other)) == MPI_ERR_GROUP);
	if (size > 1) {
		MPI_Group world = part(0, 1);
		CHECK(class(MPI_Comm_create(comm, world, &other)) == MPI_ERR_GROUP);
		CHECK(class(MPI_Comm_create_group(comm, world, 1, &other)) == MPI_ERR_GROUP);
		MPI_Group_free(&world);
	}
	works(comm, (size + 1 - rank % 2) / 2, rank / 2);
	MPI_Comm_free(&comm);
	if (rank % 2 == 0) { /* only members call */
		CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, even, 3, &comm) == MPI_SUCCESS);
		works(comm, (size + 1) / 2, rank / 2);
		MPI_Comm_free(&comm);
	}
	CHECK(class(MPI_Comm_create_group(MPI_COMM_WORLD, mine, -5, &comm)) == MPI_ERR_TAG);
	CHECK(class(MPI_Comm_free(&comm)) == MPI_ERR_COMM);
	comm = MPI_COMM_WORLD;
	CHECK(class(MPI_Comm_free(&comm)) == MPI_ERR_COMM && comm == MPI_COMM_WORLD);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Group_free(&even);
	MPI_Group_free(&mine);
}

static void test_idup(void)
{
	MPI_Comm comms[3];
	MPI_Request requests[4];
	MPI_Info info;
	int in = -1, out = 40 + rank, i, done = 0;
	MPI_Info_create(&info);
	for (i = 0; i < 2; i++)
		CHECK(MPI_Comm_idup(MPI_COMM_WORLD, &comms[i], &requests[i]) == MPI_SUCCESS);
#if MPI_VERSION >= 4
	CHECK(MPI_Comm_idup_with_info(MPI_COMM_WORLD, info, &comms[2], &requests[3]) == MPI_SUCCESS);
#else
	CHECK(MPI_Comm_idup(MPI_COMM_WORLD, &comms[2], &requests[3]) == MPI_SUCCESS);
#endif
	MPI_Info_free(&info);
	MPI_Irecv(&in, 1, MPI_INT, (rank + 1) % size, 6, MPI_COMM_WORLD, &requests[2]);
	MPI_Send(&out, 1, MPI_INT, (rank + size - 1) % size, 6, MPI_COMM_WORLD);
	while (!done)
		MPI_Test(&requests[3], &done, MPI_STATUS_IGNORE);
	works(comms[2], size, rank);
	CHECK(requests[3] == MPI_REQUEST_NULL && MPI_Waitall(3, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
	CHECK(in == 40 + (rank + 1) % size && requests[0] == MPI_REQUEST_NULL);
	CHECK(compared(comms[0], comms[1]) == MPI_CONGRUENT && compared(comms[0], comms[0]) == MPI_IDENT);
	for (i = 0; i < 3; i++) {
		works(comms[i], size, rank);
		MPI_Comm_free(&comms[i]);
	}
}

static void test_compare(void)
{
	MPI_Comm same, back, half;
	int flag = -1;
	MPI_Comm_dup(MPI_COMM_WORLD, &same);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &back);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
	CHECK(compared(MPI_COMM_WORLD, same) == MPI_CONGRUENT && compared(MPI_COMM_WORLD, MPI_COMM_WORLD) == MPI_IDENT);
	CHECK(compared(same, back) == (size == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
	CHECK(compared(half, MPI_COMM_WORLD) == (size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));
	CHECK(MPI_Comm_test_inter(same, &flag) == MPI_SUCCESS && !flag);
	MPI_Comm_free(&same);
	MPI_Comm_free(&back);
	MPI_Comm_free(&half);
}

/* The even ranks on one side, the odd ones on the other. */
static void check_inter(MPI_Comm inter)
{
	int flag = -1, n = -1, others = -1, in = -1, result = -1, odd = rank % 2;
	MPI_Group local, remote, mine = part(odd, 2), theirs = part(1 - odd, 2);
	CHECK(MPI_Comm_test_inter(inter, &flag) == MPI_SUCCESS && flag);
	CHECK(MPI_Comm_size(inter, &n) == MPI_SUCCESS && n == (size + 1 - odd) / 2);
	CHECK(MPI_Comm_remote_size(inter, &others) == MPI_SUCCESS && others == size - n);
	CHECK(MPI_Comm_group(inter, &local) == MPI_SUCCESS && MPI_Comm_remote_group(inter, &remote) == MPI_SUCCESS);
	CHECK(MPI_Group_compare(local, mine, &result) == MPI_SUCCESS && result == MPI_IDENT);
	CHECK(MPI_Group_compare(remote, theirs, &result) == MPI_SUCCESS && result == MPI_IDENT);
	if (rank / 2 < others) { /* with the process of the same rank */
		if (odd || rank + 1 < size)
			MPI_Sendrecv(&rank, 1, MPI_INT, rank / 2, 8, &in, 1, MPI_INT, rank / 2, 8, inter, MPI_STATUS_IGNORE);
		CHECK(in == rank + 1 - 2 * odd);
	}
	MPI_Group_free(&local);
	MPI_Group_free(&remote);
	MPI_Group_free(&mine);
	MPI_Group_free(&theirs);
}

static void test_intercommunicators(void)
{
	MPI_Comm half, inter, same, merged, first;
	MPI_Group one;
	int odd = rank % 2, zero = 0, evens = (size + 1) / 2;
	MPI_Comm_split(MPI_COMM_WORLD, odd, 0, &half);
	/* The peer counts at the leader only. */
	CHECK(MPI_Intercomm_create(half, 0, rank < 2 ? MPI_COMM_WORLD : MPI_COMM_NULL, 1 - odd, 7, &inter) == MPI_SUCCESS);
	check_inter(inter);
	CHECK(MPI_Comm_dup(inter, &same) == MPI_SUCCESS && compared(same, inter) == MPI_CONGRUENT);
	check_inter(same);
	MPI_Comm_free(&same);
	MPI_Barrier(inter);
	CHECK(MPI_Intercomm_merge(inter, !odd, &merged) == MPI_SUCCESS); /* the odd ones first */
	works(merged, size, odd ? rank / 2 : size - evens + rank / 2);
	MPI_Comm_free(&merged);
	MPI_Comm_group(inter, &one);
	{
		MPI_Group all = one;
		MPI_Group_incl(all, 1, &zero, &one);
		MPI_Group_free(&all);
	}
	CHECK(MPI_Comm_create(inter, one, &first) == MPI_SUCCESS && (first != MPI_COMM_NULL) == (rank < 2));
	if (rank < 2) {
		int n = -1;
		CHECK(MPI_Comm_remote_size(first, &n) == MPI_SUCCESS && n == 1);
		MPI_Comm_free(&first);
	}
	MPI_Group_free(&one);
	MPI_Comm_free(&inter);
	MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
	CHECK(class(MPI_Intercomm_create(half, size, MPI_COMM_WORLD, 1 - odd, 7, &inter)) == MPI_ERR_RANK);
	CHECK(class(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - odd, -7, &inter)) == MPI_ERR_TAG);
	if (rank < 2)
		CHECK(class(MPI_Intercomm_create(half, 0, MPI_COMM_NULL, 1 - odd, 7, &inter)) == MPI_ERR_COMM);
	else
		CHECK(MPI_Intercomm_create(half, 0, MPI_COMM_NULL, 1 - odd, 7, &inter) != MPI_SUCCESS);
	CHECK(class(MPI_Intercomm_merge(half, 0, &merged)) == MPI_ERR_COMM);
	MPI_Comm_free(&half);
}

static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
	CHECK(*comm == MPI_COMM_NULL && class(*code) == MPI_ERR_GROUP);
	handled++;
}

#if MPI_VERSION >= 4
static void test_from_groups(void)
{
	int odd = rank % 2;
	MPI_Group mine = part(odd, 2), theirs = part(1 - odd, 2), all = part(0, 1);
	MPI_Comm comm;
	MPI_Errhandler handler, got;
	CHECK(MPI_Comm_create_from_group(all, "org.example.all", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
	works(comm, size, rank);
	MPI_Comm_get_errhandler(comm, &got);
	CHECK(got == MPI_ERRORS_RETURN);
	MPI_Comm_free(&comm);
	MPI_Comm_create_errhandler(handle, &handler);
	CHECK(class(MPI_Comm_create_from_group(MPI_GROUP_NULL, "org.example.none", MPI_INFO_NULL, handler, &comm)) == MPI_ERR_GROUP && handled == 1);
	if (size > 1) {
		CHECK(MPI_Intercomm_create_from_groups(mine, 0, theirs, 0, "org.example.two", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm) == MPI_SUCCESS);
		check_inter(comm);
		MPI_Comm_free(&comm);
		MPI_Group_free(&theirs);
	}
	MPI_Errhandler_free(&handler);
	MPI_Group_free(&mine);
	MPI_Group_free(&all);
}
#else
static void test_from_groups(void) {}
#endif

/* named reports whether a communicator has a name. */
static int named(MPI_Comm comm, const char *name)
{
	char got[MPI_MAX_OBJECT_NAME] = "?";
	int length = -1;
	CHECK(MPI_Comm_get_name(comm, got, &length) == MPI_SUCCESS);
	return strcmp(got, name) == 0 && length == (int)strlen(name);
}

static void test_names(void)
{
	char longest[2 * MPI_MAX_OBJECT_NAME], none[MPI_MAX_OBJECT_NAME];
	int length = -1;
	MPI_Comm comm = MPI_COMM_WORLD, same;
	CHECK(MPI_Comm_get_parent(&comm) == MPI_SUCCESS && comm == MPI_COMM_NULL);
	CHECK(MPI_Type_get_name(MPI_DATATYPE_NULL, none, &length) == MPI_SUCCESS && strcmp(none, "MPI_DATATYPE_NULL") == 0 && length == 17);
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	CHECK(named(MPI_COMM_WORLD, "MPI_COMM_WORLD") && named(MPI_COMM_SELF, "MPI_COMM_SELF") && named(MPI_COMM_NULL, "MPI_COMM_NULL"));
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	CHECK(named(comm, ""));
	CHECK(MPI_Comm_set_name(comm, "rows") == MPI_SUCCESS && named(comm, "rows"));
	MPI_Comm_dup(comm, &same);
	CHECK(named(same, ""));
	MPI_Comm_free(&same);
	CHECK(MPI_Comm_set_name(comm, "") == MPI_SUCCESS && named(comm, ""));
	CHECK(MPI_Comm_set_name(comm, longest) == MPI_SUCCESS);
	longest[MPI_MAX_OBJECT_NAME - 1] = 0;
	CHECK(named(comm, longest));
	MPI_Comm_free(&comm);
	CHECK(MPI_Comm_set_name(MPI_COMM_WORLD, "all") == MPI_SUCCESS && named(MPI_COMM_WORLD, "all"));
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	test_create();
	test_idup();
	test_compare();
	if (size > 1)
		test_intercommunicators();
	test_from_groups();
	test_names();
	return finish();
}
