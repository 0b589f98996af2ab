/* Cartesian grids. */

#include "check.h"

static void dims(void)
{
	int d[3] = {0, 0, 0};
	CHECK(MPI_Dims_create(12, 3, d) == MPI_SUCCESS && d[0] == 3 && d[1] == 2 && d[2] == 2);
	d[0] = 0, d[1] = 3, d[2] = 0;
	CHECK(MPI_Dims_create(12, 3, d) == MPI_SUCCESS && d[0] == 2 && d[1] == 3 && d[2] == 2);
	d[0] = 4, d[1] = 3;
	CHECK(MPI_Dims_create(12, 2, d) == MPI_SUCCESS && d[0] == 4 && d[1] == 3);
	CHECK(MPI_Dims_create(1, 0, NULL) == MPI_SUCCESS);

	CHECK(MPI_Dims_create(7, 2, d) == MPI_ERR_DIMS && d[0] == 4 && d[1] == 3);
	d[1] = 0;
	CHECK(MPI_Dims_create(6, 2, d) == MPI_ERR_DIMS && d[0] == 4 && d[1] == 0);
	d[0] = -1;
	CHECK(MPI_Dims_create(6, 2, d) == MPI_ERR_DIMS);
	CHECK(MPI_Dims_create(6, -1, d) == MPI_ERR_DIMS);
	CHECK(MPI_Dims_create(0, 2, d) == MPI_ERR_ARG);
	CHECK(MPI_Dims_create(6, 2, NULL) == MPI_ERR_ARG);
}

/* along checks the ranks at both sides of one at x, of n with a distance of stride. */
static void along(MPI_Comm grid, int direction, int x, int n, int stride, int periodic, int me)
{
	for (int disp = -3; disp <= 3; disp++) {
		int source = -77, dest = -77, from = x - disp, to = x + disp;
		CHECK(MPI_Cart_shift(grid, direction, disp, &source, &dest) == MPI_SUCCESS);
		if (periodic)
			from = (from % n + n) % n, to = (to % n + n) % n;
		CHECK(source == (from < 0 || from >= n ? MPI_PROC_NULL : me + (from - x) * stride));
		CHECK(dest == (to < 0 || to >= n ? MPI_PROC_NULL : me + (to - x) * stride));
	}
}

/* A shift is what a Sendrecv takes, edges included. */
static void moves(MPI_Comm grid, int me)
{
	int source, dest, got = -1;
	MPI_Cart_shift(grid, 0, 1, &source, &dest);
	CHECK(MPI_Sendrecv(&me, 1, MPI_INT, dest, 0, &got, 1, MPI_INT, source, 0, grid, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	CHECK(got == (source == MPI_PROC_NULL ? -1 : source));
}

/* Rows, columns, and the two extremes. */
static void subs(MPI_Comm grid, const int d[2], const int at[2], int me)
{
	for (int choice = 0; choice < 4; choice++) {
		int remain[2] = {choice & 1, choice & 2 ? 5 : 0}, n = -1, r = -1, nd = -1, dd[2], pp[2], cc[2], total;
		int want = 1, place = 0, sum = 0;
		MPI_Comm sub = MPI_COMM_WORLD;
		CHECK(MPI_Cart_sub(grid, remain, &sub) == MPI_SUCCESS);
		MPI_Comm_size(sub, &n), MPI_Comm_rank(sub, &r);
		for (int i = 0; i < 2; i++)
			if (remain[i])
				want *= d[i], place = place * d[i] + at[i];
		CHECK(n == want && r == place);
		CHECK(MPI_Cartdim_get(sub, &nd) == MPI_SUCCESS && nd == (remain[0] != 0) + (remain[1] != 0));
		CHECK(MPI_Cart_get(sub, 2, dd, pp, cc) == MPI_SUCCESS);
		for (int i = 0, k = 0; i < 2; i++)
			if (remain[i]) {
				CHECK(dd[k] == d[i] && pp[k] == i && cc[k] == at[i]);
				k++;
			}
		for (int i = 0; i < d[0]; i++)
			for (int j = 0; j < d[1]; j++)
				if ((remain[0] || i == at[0]) && (remain[1] || j == at[1]))
					sum += i * d[1] + j;
		CHECK(MPI_Allreduce(&me, &total, 1, MPI_INT, MPI_SUM, sub) == MPI_SUCCESS && total == sum);
		CHECK(MPI_Comm_free(&sub) == MPI_SUCCESS && sub == MPI_COMM_NULL);
	}
}

/* A grid of two rows, the second dimension a ring, which leaves one rank out where it can. */
static void grids(void)
{
	int d[2] = {size > 1 ? 2 : 1, size > 2 ? (size - 1) / 2 : 1}, periods[2] = {0, 7};
	int cells = d[0] * d[1], n, me, kind = -7, nd = -7;
	MPI_Comm grid = MPI_COMM_WORLD;
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, 2, d, periods, 0, &grid) == MPI_SUCCESS);
	CHECK((grid == MPI_COMM_NULL) == (rank >= cells));
	if (grid == MPI_COMM_NULL)
		return;
	MPI_Comm_size(grid, &n), MPI_Comm_rank(grid, &me);
	CHECK(n == cells && me == rank);
	CHECK(MPI_Topo_test(grid, &kind) == MPI_SUCCESS && kind == MPI_CART);
	CHECK(MPI_Cartdim_get(grid, &nd) == MPI_SUCCESS && nd == 2);

	int got[4] = {-7, -7, -7, -7}, rings[3] = {-7, -7, -7}, at[3] = {-7, -7, -7};
	CHECK(MPI_Cart_get(grid, 3, got, rings, at) == MPI_SUCCESS);
	CHECK(got[0] == d[0] && got[1] == d[1] && got[2] == -7);
	CHECK(rings[0] == 0 && rings[1] == 1 && rings[2] == -7);
	CHECK(at[0] == rank / d[1] && at[1] == rank % d[1] && at[2] == -7);
	for (int r = 0; r < cells; r++) {
		int c[3] = {-7, -7, -7}, back = -7;
		CHECK(MPI_Cart_coords(grid, r, 3, c) == MPI_SUCCESS && c[0] == r / d[1] && c[1] == r % d[1] && c[2] == -7);
		c[1] -= 3 * d[1];
		CHECK(MPI_Cart_rank(grid, c, &back) == MPI_SUCCESS && back == r);
	}
	along(grid, 0, at[0], d[0], d[1], 0, me);
	along(grid, 1, at[1], d[1], 1, 1, me);
	moves(grid, me);
	subs(grid, d, at, me);

	int c[2] = {d[0], 0}, x = -7, y = -7;
	MPI_Comm_set_errhandler(grid, MPI_ERRORS_RETURN);
	CHECK(MPI_Cart_rank(grid, c, &x) == MPI_ERR_ARG && x == -7);
	CHECK(MPI_Cart_coords(grid, cells, 2, c) == MPI_ERR_RANK);
	CHECK(MPI_Cart_coords(grid, -1, 2, c) == MPI_ERR_RANK);
	CHECK(MPI_Cart_coords(grid, 0, 1, c) == MPI_ERR_ARG);
	CHECK(MPI_Cart_get(grid, 1, c, c, c) == MPI_ERR_ARG);
	CHECK(MPI_Cart_shift(grid, 2, 1, &x, &y) == MPI_ERR_DIMS && x == -7 && y == -7);
	CHECK(MPI_Cart_shift(grid, -1, 1, &x, &y) == MPI_ERR_DIMS);

	MPI_Comm same, plain;
	MPI_Comm_dup(grid, &same);
	CHECK(MPI_Topo_test(same, &kind) == MPI_SUCCESS && kind == MPI_CART);
	MPI_Comm_split(grid, 0, 0, &plain);
	CHECK(MPI_Topo_test(plain, &kind) == MPI_SUCCESS && kind == MPI_UNDEFINED);
	MPI_Comm_free(&plain), MPI_Comm_free(&same), MPI_Comm_free(&grid);
}

/* A grid without dimensions has one process, whose coordinates are no numbers. */
static void point(void)
{
	MPI_Comm grid, sub;
	int n = -7, x = -7, y = -7, kind;
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &grid) == MPI_SUCCESS);
	CHECK((grid == MPI_COMM_NULL) == (rank != 0));
	if (grid == MPI_COMM_NULL)
		return;
	MPI_Comm_size(grid, &n);
	CHECK(n == 1);
	CHECK(MPI_Topo_test(grid, &kind) == MPI_SUCCESS && kind == MPI_CART);
	CHECK(MPI_Cartdim_get(grid, &n) == MPI_SUCCESS && n == 0);
	CHECK(MPI_Cart_get(grid, 1, &x, &x, &x) == MPI_SUCCESS && x == -7);
	CHECK(MPI_Cart_coords(grid, 0, 1, &x) == MPI_SUCCESS && x == -7);
	CHECK(MPI_Cart_rank(grid, NULL, &y) == MPI_SUCCESS && y == 0);
	CHECK(MPI_Cart_sub(grid, NULL, &sub) == MPI_SUCCESS);
	CHECK(MPI_Cartdim_get(sub, &n) == MPI_SUCCESS && n == 0);
	MPI_Comm_set_errhandler(grid, MPI_ERRORS_RETURN);
	CHECK(MPI_Cart_shift(grid, 0, 1, &x, &y) == MPI_ERR_DIMS);
	MPI_Comm_free(&sub), MPI_Comm_free(&grid);
}

/* Reordering gives every rank a place, the one that Cart_map says. */
static void reordering(void)
{
	int periods[1] = {1}, d[1] = {size > 1 ? size - 1 : 1}, to = -7, me = MPI_UNDEFINED;
	MPI_Comm grid;
	CHECK(MPI_Cart_map(MPI_COMM_WORLD, 1, d, periods, &to) == MPI_SUCCESS);
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, 1, d, periods, 1, &grid) == MPI_SUCCESS);
	if (grid != MPI_COMM_NULL) {
		MPI_Comm_rank(grid, &me);
		MPI_Comm_free(&grid);
	}
	CHECK(to == me);
	int left = to == MPI_UNDEFINED;
	MPI_Allreduce(MPI_IN_PLACE, &left, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(left == size - d[0]);
}

static void errors(void)
{
	int d[2] = {size + 1, 1}, p[2] = {0, 0}, x = -7, y = -7, kind = -7;
	MPI_Comm grid = MPI_COMM_SELF;
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, 2, d, p, 0, &grid) == MPI_ERR_DIMS && grid == MPI_COMM_SELF);
	d[0] = 0;
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, 2, d, p, 0, &grid) == MPI_ERR_DIMS);
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, -1, d, p, 0, &grid) == MPI_ERR_DIMS);
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, 2, NULL, p, 0, &grid) == MPI_ERR_ARG);
	CHECK(MPI_Cart_create(MPI_COMM_WORLD, 2, d, NULL, 0, &grid) == MPI_ERR_ARG);
	CHECK(MPI_Cart_create(MPI_COMM_NULL, 2, d, p, 0, &grid) == MPI_ERR_COMM);
	CHECK(MPI_Cart_map(MPI_COMM_WORLD, 2, d, p, &x) == MPI_ERR_DIMS && x == -7);
	CHECK(MPI_Topo_test(MPI_COMM_WORLD, &kind) == MPI_SUCCESS && kind == MPI_UNDEFINED);
	CHECK(MPI_Cartdim_get(MPI_COMM_WORLD, &x) == MPI_ERR_TOPOLOGY && x == -7);
	CHECK(MPI_Cart_get(MPI_COMM_WORLD, 2, d, p, d) == MPI_ERR_TOPOLOGY);
	CHECK(MPI_Cart_rank(MPI_COMM_WORLD, d, &x) == MPI_ERR_TOPOLOGY);
	CHECK(MPI_Cart_coords(MPI_COMM_WORLD, 0, 2, d) == MPI_ERR_TOPOLOGY);
	CHECK(MPI_Cart_shift(MPI_COMM_WORLD, 0, 1, &x, &y) == MPI_ERR_TOPOLOGY);
	CHECK(MPI_Cart_sub(MPI_COMM_WORLD, p, &grid) == MPI_ERR_TOPOLOGY && grid == MPI_COMM_SELF);
	CHECK(MPI_Topo_test(MPI_COMM_NULL, &kind) == MPI_ERR_COMM);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	dims();
	grids();
	point();
	reordering();
	errors();
	return finish();
}
