/* Graphs and distributed graphs. */

#include "check.h"

#define MOST 64

/* Each of n nodes has its predecessor, its successor and itself, in this order. */
static void ring(int n, int *index, int *edges)
{
	for (int i = 0; i < n; i++) {
		index[i] = 3 * (i + 1);
		edges[3 * i] = (i + n - 1) % n, edges[3 * i + 1] = (i + 1) % n, edges[3 * i + 2] = i;
	}
}

static void graphs(void)
{
	int n = size > 2 ? size - 1 : size, index[MOST], edges[MOST], i2[MOST], e2[MOST], kind = -7, a = -7, b = -7, to = -7, me = MPI_UNDEFINED;
	MPI_Comm graph = MPI_COMM_WORLD;
	ring(n, index, edges);
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 0, &graph) == MPI_SUCCESS);
	CHECK((graph == MPI_COMM_NULL) == (rank >= n));
	if (graph != MPI_COMM_NULL) {
		MPI_Comm_set_errhandler(graph, MPI_ERRORS_RETURN);
		MPI_Comm_rank(graph, &me), MPI_Comm_size(graph, &a);
		CHECK(me == rank && a == n);
		CHECK(MPI_Topo_test(graph, &kind) == MPI_SUCCESS && kind == MPI_GRAPH);
		CHECK(MPI_Graphdims_get(graph, &a, &b) == MPI_SUCCESS && a == n && b == 3 * n);
		i2[n] = e2[3 * n] = -7;
		CHECK(MPI_Graph_get(graph, n + 1, 3 * n + 1, i2, e2) == MPI_SUCCESS && i2[n] == -7 && e2[3 * n] == -7);
		CHECK(memcmp(index, i2, sizeof(int) * (size_t)n) == 0 && memcmp(edges, e2, sizeof(int) * (size_t)(3 * n)) == 0);
		for (int r = 0; r < n; r++) {
			CHECK(MPI_Graph_neighbors_count(graph, r, &a) == MPI_SUCCESS && a == 3);
			e2[3] = -7;
			CHECK(MPI_Graph_neighbors(graph, r, 4, e2) == MPI_SUCCESS && e2[3] == -7);
			CHECK(memcmp(e2, edges + 3 * r, 3 * sizeof(int)) == 0);
		}
		CHECK(MPI_Graph_neighbors(graph, 0, 2, e2) == MPI_ERR_ARG);
		CHECK(MPI_Graph_neighbors(graph, n, 3, e2) == MPI_ERR_RANK);
		CHECK(MPI_Graph_neighbors_count(graph, -1, &a) == MPI_ERR_RANK);
		CHECK(MPI_Graph_get(graph, n - 1, 3 * n, i2, e2) == MPI_ERR_ARG && MPI_Graph_get(graph, n, 3 * n - 1, i2, e2) == MPI_ERR_ARG);
		CHECK(MPI_Cartdim_get(graph, &a) == MPI_ERR_TOPOLOGY && MPI_Dist_graph_neighbors_count(graph, &a, &b, &kind) == MPI_ERR_TOPOLOGY);
		MPI_Comm_free(&graph);
	}
	me = MPI_UNDEFINED;
	CHECK(MPI_Graph_map(MPI_COMM_WORLD, n, index, edges, &to) == MPI_SUCCESS);
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 1, &graph) == MPI_SUCCESS);
	if (graph != MPI_COMM_NULL)
		MPI_Comm_rank(graph, &me), MPI_Comm_free(&graph);
	CHECK(to == me);
	graph = MPI_COMM_SELF;
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &graph) == MPI_SUCCESS && graph == MPI_COMM_NULL);

	int one[2] = {1, 0}, node[1] = {0};
	graph = MPI_COMM_SELF;
	ring(size + 1, index, edges);
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, size + 1, index, edges, 0, &graph) == MPI_ERR_ARG && graph == MPI_COMM_SELF);
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, -1, index, edges, 0, &graph) == MPI_ERR_ARG);
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, 2, one, node, 0, &graph) == MPI_ERR_ARG);
	node[0] = size;
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, 1, one, node, 0, &graph) == MPI_ERR_RANK);
	one[0] = -1;
	CHECK(MPI_Graph_create(MPI_COMM_WORLD, 1, one, node, 0, &graph) == MPI_ERR_ARG);
	CHECK(MPI_Graph_create(MPI_COMM_NULL, 1, one, node, 0, &graph) == MPI_ERR_COMM);
	CHECK(MPI_Graphdims_get(MPI_COMM_WORLD, &a, &b) == MPI_ERR_TOPOLOGY && MPI_Graph_neighbors_count(MPI_COMM_WORLD, 0, &a) == MPI_ERR_TOPOLOGY);
}

/* Each rank receives from its predecessor, and sends to its successor and twice to rank 0. */
static void adjacent(void)
{
	int before = (rank + size - 1) % size, after = (rank + 1) % size, indegree = rank == 0 ? 1 + 2 * size : 1, in, out, weighted = -7, kind;
	int sources[MOST] = {before}, sw[MOST] = {before}, dests[3] = {after, 0, 0}, dw[3] = {rank, 100 + rank, 200 + rank};
	int s[MOST], ws[MOST], d[4] = {-7, -7, -7, -7}, wd[4] = {-7, -7, -7, -7};
	for (int i = 0; i < size && rank == 0; i++)
		sources[1 + 2 * i] = sources[2 + 2 * i] = i, sw[1 + 2 * i] = 100 + i, sw[2 + 2 * i] = 200 + i;
	MPI_Comm graph;
	CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, indegree, sources, sw, 3, dests, dw, MPI_INFO_NULL, 1, &graph) == MPI_SUCCESS);
	MPI_Comm_set_errhandler(graph, MPI_ERRORS_RETURN);
	CHECK(MPI_Topo_test(graph, &kind) == MPI_SUCCESS && kind == MPI_DIST_GRAPH);
	CHECK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted) == MPI_SUCCESS && in == indegree && out == 3 && weighted == 1);
	CHECK(MPI_Dist_graph_neighbors(graph, MOST, s, ws, 4, d, wd) == MPI_SUCCESS);
	CHECK(memcmp(s, sources, sizeof(int) * (size_t)in) == 0 && memcmp(ws, sw, sizeof(int) * (size_t)in) == 0);
	CHECK(memcmp(d, dests, sizeof dests) == 0 && memcmp(wd, dw, sizeof dw) == 0 && d[3] == -7 && wd[3] == -7);

	/* What has no room is left out, and so are weights that the program does not want. */
	d[0] = d[1] = wd[0] = wd[1] = s[0] = -7;
	CHECK(MPI_Dist_graph_neighbors(graph, 0, s, MPI_UNWEIGHTED, 1, d, MPI_UNWEIGHTED) == MPI_SUCCESS);
	CHECK(s[0] == -7 && d[0] == after && d[1] == -7);
	CHECK(MPI_Dist_graph_neighbors(graph, 1, s, ws, 1, d, wd) == MPI_SUCCESS && s[0] == before && wd[0] == rank && wd[1] == -7);
	CHECK(MPI_Dist_graph_neighbors(graph, -1, s, ws, 1, d, wd) == MPI_ERR_ARG);
	MPI_Comm_free(&graph);

	ws[0] = wd[0] = -7;
	CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &after, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_SUCCESS);
	CHECK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted) == MPI_SUCCESS && in == 1 && out == 1 && weighted == 0);
	CHECK(MPI_Dist_graph_neighbors(graph, 1, s, ws, 1, d, wd) == MPI_SUCCESS && s[0] == before && d[0] == after && ws[0] == -7 && wd[0] == -7);
	MPI_Comm_free(&graph);
}

/* A star with weights: what is at its ends has no sources, and its middle no destinations. */
static void star(void)
{
	int sources[MOST], weights[MOST], in, out, weighted, to = 0, weight = 10 + rank, s[MOST], w[MOST];
	for (int i = 1; i < size; i++)
		sources[i - 1] = i, weights[i - 1] = 10 + i;
	MPI_Comm graph;
	if (rank == 0)
		CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, size - 1, sources, weights, 0, NULL, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &graph) == MPI_SUCCESS);
	else
		CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 1, &to, &weight, MPI_INFO_NULL, 0, &graph) == MPI_SUCCESS);
	CHECK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted) == MPI_SUCCESS);
	CHECK(in == (rank == 0 ? size - 1 : 0) && out == (rank != 0) && weighted == 1);
	if (rank == 0) {
		CHECK(MPI_Dist_graph_neighbors(graph, in, s, w, 0, NULL, MPI_WEIGHTS_EMPTY) == MPI_SUCCESS);
		CHECK(memcmp(s, sources, sizeof(int) * (size_t)in) == 0 && memcmp(w, weights, sizeof(int) * (size_t)in) == 0);
	}
	MPI_Comm_free(&graph);
}

/* Rank 0 gives all edges, from each rank to all from itself on, and the others none. */
static void anywhere(void)
{
	int n = rank == 0 ? size : 0, sources[MOST], degrees[MOST], dests[MOST], weights[MOST], k = 0, in, out, weighted, s[MOST], d[MOST], ws[MOST], wd[MOST];
	for (int i = 0; i < n; i++) {
		sources[i] = i, degrees[i] = size - i;
		for (int j = i; j < size; j++, k++)
			dests[k] = j, weights[k] = 10 * i + j;
	}
	MPI_Comm graph;
	for (int plain = 0; plain < 2; plain++) {
		int *w = plain ? MPI_UNWEIGHTED : rank == 0 ? weights : MPI_WEIGHTS_EMPTY;
		CHECK(MPI_Dist_graph_create(MPI_COMM_WORLD, n, sources, degrees, dests, w, MPI_INFO_NULL, 1, &graph) == MPI_SUCCESS);
		CHECK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted) == MPI_SUCCESS);
		CHECK(in == rank + 1 && out == size - rank && weighted == !plain);
		CHECK(MPI_Dist_graph_neighbors(graph, in, s, ws, out, d, wd) == MPI_SUCCESS);
		for (int i = 0; i < in; i++)
			CHECK(s[i] == i && (plain || ws[i] == 10 * i + rank));
		for (int i = 0; i < out; i++)
			CHECK(d[i] == rank + i && (plain || wd[i] == 10 * rank + rank + i));
		MPI_Comm_free(&graph);
	}

	/* Each rank gives an edge between two others. */
	int from = (rank + 1) % size, degree = 1, to = (rank + 2) % size, weight = rank;
	CHECK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &from, &degree, &to, &weight, MPI_INFO_NULL, 0, &graph) == MPI_SUCCESS);
	CHECK(MPI_Dist_graph_neighbors(graph, 1, s, ws, 1, d, wd) == MPI_SUCCESS);
	CHECK(s[0] == (rank + size - 1) % size && d[0] == (rank + 1) % size);
	CHECK(ws[0] == (rank + 2 * size - 2) % size && wd[0] == (rank + size - 1) % size);
	MPI_Comm_free(&graph);
}

static void errors(void)
{
	MPI_Comm graph = MPI_COMM_SELF;
	int to = 0, one = 1, weight = 1, x, y, z;
	CHECK(MPI_Dist_graph_create(MPI_COMM_WORLD, -1, &to, &one, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_ERR_ARG);
	CHECK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &to, &one, &to, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &graph) == MPI_ERR_ARG);
	CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, -1, &to, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_ERR_ARG);
	CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &to, MPI_UNWEIGHTED, 1, &to, &weight, MPI_INFO_NULL, 0, &graph) == MPI_ERR_ARG);
	CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, NULL, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_ERR_ARG);
	weight = -1;
	CHECK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &to, &one, &to, &weight, MPI_INFO_NULL, 0, &graph) == MPI_ERR_ARG);
	one = -1;
	CHECK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &to, &one, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_ERR_ARG);
	one = 1, to = size;
	CHECK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &to, &one, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_ERR_RANK);
	CHECK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_ERR_RANK);
	CHECK(graph == MPI_COMM_SELF);
	CHECK(MPI_Dist_graph_neighbors_count(MPI_COMM_WORLD, &x, &y, &z) == MPI_ERR_TOPOLOGY);
	CHECK(MPI_Dist_graph_neighbors(MPI_COMM_WORLD, 0, NULL, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED) == MPI_ERR_TOPOLOGY);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	graphs();
	adjacent();
	star();
	anywhere();
	errors();
	return finish();
}
