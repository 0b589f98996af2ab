/* Groups: members, translation, comparison, set operations, choices by ranks and ranges, errors. */

#include "check.h"

static MPI_Group world;

/* is reports whether g has these n ranks of the world, in this order. */
static int is(MPI_Group g, int n, const int *expected)
{
	int members = -1, i, mine = MPI_UNDEFINED, got = -7, ranks[16], in_world[16];
	CHECK(MPI_Group_size(g, &members) == MPI_SUCCESS && MPI_Group_rank(g, &got) == MPI_SUCCESS);
	if (members != n)
		return 0;
	for (i = 0; i < n; i++)
		ranks[i] = i;
	CHECK(MPI_Group_translate_ranks(g, n, ranks, world, in_world) == MPI_SUCCESS);
	for (i = 0; i < n; i++) {
		if (in_world[i] != expected[i])
			return 0;
		if (in_world[i] == rank)
			mine = i;
	}
	return got == mine;
}

/* compared returns the result of comparing two groups. */
static int compared(MPI_Group a, MPI_Group b)
{
	int result = -1;
	CHECK(MPI_Group_compare(a, b, &result) == MPI_SUCCESS);
	return result;
}

static void test_members(void)
{
	MPI_Group self, again;
	int i, all[16];
	for (i = 0; i < size; i++)
		all[i] = i;
	CHECK(is(world, size, all));
	CHECK(MPI_Comm_group(MPI_COMM_SELF, &self) == MPI_SUCCESS && is(self, 1, &rank));
	CHECK(MPI_Comm_group(MPI_COMM_WORLD, &again) == MPI_SUCCESS && compared(world, again) == MPI_IDENT);
	CHECK(compared(world, self) == (size == 1 ? MPI_IDENT : MPI_UNEQUAL));
	CHECK(MPI_Group_free(&again) == MPI_SUCCESS && again == MPI_GROUP_NULL);
	CHECK(is(world, size, all));
	MPI_Group_free(&self);
}

static void test_translation(void)
{
	MPI_Group last;
	int ranks[3] = {size - 1, MPI_PROC_NULL, 0}, there[3] = {-9, -9, -9}, one = size - 1;
	CHECK(MPI_Group_incl(world, 1, &one, &last) == MPI_SUCCESS && is(last, 1, &one));
	CHECK(MPI_Group_translate_ranks(world, 3, ranks, last, there) == MPI_SUCCESS);
	CHECK(there[0] == 0 && there[1] == MPI_PROC_NULL && there[2] == (size == 1 ? 0 : MPI_UNDEFINED));
	CHECK(ranks[1] == MPI_PROC_NULL);
	CHECK(MPI_Group_translate_ranks(world, 0, NULL, last, NULL) == MPI_SUCCESS);
	MPI_Group_free(&last);
}

/* The even ranks, then all ranks backwards: what they have together keeps the order of the first. */
static void test_sets(void)
{
	MPI_Group even, back, odd, g;
	int evens[1][3] = {{0, size - 1, 2}}, backwards[1][3] = {{size - 1, 0, -1}}, expected[16], n = 0, i;
	CHECK(MPI_Group_range_incl(world, 1, evens, &even) == MPI_SUCCESS);
	CHECK(MPI_Group_range_incl(world, 1, backwards, &back) == MPI_SUCCESS);
	CHECK(MPI_Group_range_excl(world, 1, evens, &odd) == MPI_SUCCESS);
	CHECK(compared(world, back) == (size == 1 ? MPI_IDENT : MPI_SIMILAR));
	for (i = size - 1; i >= 0; i--)
		if (i % 2 == 0)
			expected[n++] = i;
	CHECK(MPI_Group_intersection(back, even, &g) == MPI_SUCCESS && is(g, n, expected));
	MPI_Group_free(&g);
	CHECK(MPI_Group_difference(back, odd, &g) == MPI_SUCCESS && is(g, n, expected));
	MPI_Group_free(&g);
	for (n = 0, i = 1; i < size; i += 2)
		expected[n++] = i;
	CHECK(is(odd, n, expected) && (size > 1 || odd == MPI_GROUP_EMPTY));
	for (i = 0; i < size; i += 2)
		expected[n++] = i;
	CHECK(MPI_Group_union(odd, even, &g) == MPI_SUCCESS && is(g, n, expected));
	MPI_Group_free(&g);
	CHECK(MPI_Group_intersection(odd, even, &g) == MPI_SUCCESS && g == MPI_GROUP_EMPTY);
	CHECK(MPI_Group_difference(even, world, &g) == MPI_SUCCESS && g == MPI_GROUP_EMPTY);
	MPI_Group_free(&even);
	MPI_Group_free(&back);
	if (odd != MPI_GROUP_EMPTY)
		MPI_Group_free(&odd);
}

static void test_empty(void)
{
	MPI_Group g = MPI_GROUP_EMPTY;
	int n = -1, r = -1;
	CHECK(MPI_Group_size(g, &n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_Group_rank(g, &r) == MPI_SUCCESS && r == MPI_UNDEFINED);
	CHECK(MPI_Group_incl(world, 0, NULL, &g) == MPI_SUCCESS && g == MPI_GROUP_EMPTY);
	CHECK(MPI_Group_range_incl(world, 0, NULL, &g) == MPI_SUCCESS && g == MPI_GROUP_EMPTY);
	CHECK(MPI_Group_union(MPI_GROUP_EMPTY, world, &g) == MPI_SUCCESS && compared(g, world) == MPI_IDENT);
	CHECK(MPI_Group_rank(g, &r) == MPI_SUCCESS && r == rank);
	MPI_Group_free(&g);
	CHECK(MPI_Group_excl(world, 0, NULL, &g) == MPI_SUCCESS && compared(g, world) == MPI_IDENT);
	MPI_Group_free(&g);
	g = MPI_GROUP_EMPTY;
	CHECK(MPI_Group_free(&g) == MPI_SUCCESS && g == MPI_GROUP_NULL);
	CHECK(MPI_Group_size(MPI_GROUP_EMPTY, &n) == MPI_SUCCESS);
}

/* The class of an error code. */
static int class(int code)
{
	int c = -1;
	MPI_Error_class(code, &c);
	return c;
}

static void test_errors(void)
{
	MPI_Group g = MPI_GROUP_NULL, freed;
	int outside = size, twice[2] = {0, 0}, negative = -1, null = MPI_PROC_NULL, n, still[1][3] = {{0, 0, 0}}, far[1][3] = {{0, size, 1}};
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(class(MPI_Group_size(MPI_GROUP_NULL, &n)) == MPI_ERR_GROUP);
	CHECK(class(MPI_Group_union(world, MPI_GROUP_NULL, &g)) == MPI_ERR_GROUP);
	CHECK(class(MPI_Group_compare(MPI_GROUP_NULL, world, &n)) == MPI_ERR_GROUP);
	CHECK(class(MPI_Group_free(&g)) == MPI_ERR_GROUP);
	CHECK(class(MPI_Group_incl(world, 1, &outside, &g)) == MPI_ERR_RANK);
	CHECK(class(MPI_Group_incl(world, 1, &null, &g)) == MPI_ERR_RANK);
	CHECK(class(MPI_Group_excl(world, 1, &negative, &g)) == MPI_ERR_RANK);
	CHECK(MPI_Group_incl(world, 2, twice, &g) != MPI_SUCCESS);
	CHECK(class(MPI_Group_incl(world, -1, &outside, &g)) == MPI_ERR_ARG);
	CHECK(class(MPI_Group_range_incl(world, 1, still, &g)) == MPI_ERR_ARG);
	CHECK(class(MPI_Group_range_excl(world, 1, far, &g)) == MPI_ERR_RANK);
	CHECK(class(MPI_Group_translate_ranks(world, 1, &outside, world, &n)) == MPI_ERR_RANK);
	CHECK(class(MPI_Group_translate_ranks(world, -1, &outside, world, &n)) == MPI_ERR_ARG);
	CHECK(class(MPI_Comm_group(MPI_COMM_NULL, &g)) == MPI_ERR_COMM);
	CHECK(class(MPI_Comm_remote_group(MPI_COMM_WORLD, &g)) == MPI_ERR_COMM);
	CHECK(g == MPI_GROUP_NULL);
	MPI_Comm_group(MPI_COMM_WORLD, &g);
	freed = g;
	MPI_Group_free(&g);
	CHECK(class(MPI_Group_size(freed, &n)) == MPI_ERR_GROUP);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	test_members();
	test_translation();
	test_sets();
	test_empty();
	test_errors();
	MPI_Group_free(&world);
	return finish();
}
