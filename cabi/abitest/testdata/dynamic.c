/* Processes that connect: halves of one job at a port, and two processes at the ends of a socket. */

#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* The class of an error code. */
static int class(int code)
{
	int c = -1;
	MPI_Error_class(code, &c);
	return c;
}

/* check_groups makes a communicator of the group of another, whose processes have other numbers than those of the job. */
static void check_groups(MPI_Comm comm, int n)
{
	MPI_Group group, world;
	MPI_Comm made;
	int one = 1, total = -1, result = -1;
	MPI_Comm_group(comm, &group);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	CHECK(MPI_Comm_create_from_group(group, "org.example.connected", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made) == MPI_SUCCESS);
	CHECK(MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, made) == MPI_SUCCESS && total == n);
	MPI_Comm_free(&made);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(class(MPI_Group_compare(group, world, &result)) == MPI_ERR_GROUP);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	CHECK(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result) == MPI_SUCCESS && result == MPI_UNEQUAL);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
}

/* check_inter has all processes of two groups exchange messages. */
static void check_inter(MPI_Comm inter, int mine, int theirs)
{
	int flag = -1, n = -1, r = -1, in = -1, total = -1;
	MPI_Comm merged;
	CHECK(MPI_Comm_test_inter(inter, &flag) == MPI_SUCCESS && flag);
	CHECK(MPI_Comm_size(inter, &n) == MPI_SUCCESS && n == mine);
	CHECK(MPI_Comm_remote_size(inter, &n) == MPI_SUCCESS && n == theirs);
	MPI_Comm_rank(inter, &r);
	if (r < theirs)
		MPI_Sendrecv(&rank, 1, MPI_INT, r % theirs, 4, &in, 1, MPI_INT, r % theirs, 4, inter, MPI_STATUS_IGNORE);
	MPI_Barrier(inter);
	CHECK(MPI_Intercomm_merge(inter, 0, &merged) == MPI_SUCCESS);
	r = 1;
	CHECK(MPI_Allreduce(&r, &total, 1, MPI_INT, MPI_SUM, merged) == MPI_SUCCESS && total == mine + theirs);
	check_groups(merged, mine + theirs);
	CHECK(MPI_Comm_disconnect(&merged) == MPI_SUCCESS && merged == MPI_COMM_NULL);
}

/* The even ranks accept at a port of rank 0, the odd ones connect, twice. */
static void test_halves(void)
{
	char port[MPI_MAX_PORT_NAME] = "";
	MPI_Comm half, inter, parent;
	int odd = rank % 2, evens = (size + 1) / 2, i;
	CHECK(MPI_Comm_get_parent(&parent) == MPI_SUCCESS && parent == MPI_COMM_NULL);
	MPI_Comm_split(MPI_COMM_WORLD, odd, 0, &half);
	if (rank == 0) {
		CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS && strlen(port) < sizeof port);
		MPI_Send(port, sizeof port, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
	} else if (rank == 1) {
		MPI_Recv(port, sizeof port, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	for (i = 0; i < 2; i++) {
		if (odd)
			CHECK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter) == MPI_SUCCESS);
		else
			CHECK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter) == MPI_SUCCESS);
		check_inter(inter, odd ? size - evens : evens, odd ? evens : size - evens);
		CHECK(MPI_Comm_disconnect(&inter) == MPI_SUCCESS && inter == MPI_COMM_NULL);
	}
	if (rank == 0)
		CHECK(MPI_Close_port(port) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
	CHECK(MPI_Comm_accept("nobody's", MPI_INFO_NULL, 0, half, &inter) != MPI_SUCCESS);
	MPI_Comm_free(&half);
}

/* The ends of a socket between ranks 0 and 1. */
static int connected(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM, 0), end = fd;
	if (rank == 0) {
		CHECK(bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)&address, &length) == 0);
		MPI_Send(&address, sizeof address, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
		end = accept(fd, NULL, NULL);
		close(fd);
	} else {
		MPI_Recv(&address, sizeof address, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	}
	CHECK(end >= 0);
	return end;
}

static void test_join(void)
{
	int end = connected();
	char out = 'x', in = 0;
	MPI_Comm inter;
	CHECK(MPI_Comm_join(end, &inter) == MPI_SUCCESS && inter != MPI_COMM_NULL);
	check_inter(inter, 1, 1);
	CHECK(write(end, &out, 1) == 1 && read(end, &in, 1) == 1 && in == 'x'); /* the socket is the program's again */
	MPI_Comm_disconnect(&inter);
	close(end);
}

static void test_errors(void)
{
	char port[MPI_MAX_PORT_NAME];
	MPI_Comm world = MPI_COMM_WORLD, comm;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(class(MPI_Close_port("nobody's")) == MPI_ERR_PORT);
	CHECK(class(MPI_Publish_name("name", MPI_INFO_NULL, "nobody's")) == MPI_ERR_PORT);
	CHECK(MPI_Lookup_name("name", MPI_INFO_NULL, port) != MPI_SUCCESS); /* without a helper nobody knows names */
	CHECK(class(MPI_Comm_disconnect(&world)) == MPI_ERR_COMM && world == MPI_COMM_WORLD);
	if (size == 1) {
		CHECK(class(MPI_Comm_connect("nobody's", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &comm)) == MPI_ERR_PORT);
		CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS && MPI_Close_port(port) == MPI_SUCCESS);
		CHECK(class(MPI_Close_port(port)) == MPI_ERR_PORT);
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	CHECK(MPI_Comm_disconnect(&comm) == MPI_SUCCESS && comm == MPI_COMM_NULL);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	test_errors();
	if (size > 1)
		test_halves();
	if (size > 1 && rank < 2)
		test_join();
	return finish();
}
