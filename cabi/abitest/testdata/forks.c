/* Other programs are started while messages go, as many as the argument says. */

#define _GNU_SOURCE
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void start_program(int i)
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) {
		char *const command[] = {"sh", "-c", "exit 7", NULL};
		execv("/bin/sh", command);
		_exit(9);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	if (i % 10 == 0)
		CHECK(system("exit 3") == 3 << 8);
}

int main(int argc, char **argv)
{
	enum { N = 20000 };
	static int in[N], out[N];
	begin(&argc, &argv);
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	for (int i = 0; i < atoi(argv[1]); i++) {
		MPI_Request r[2];
		out[N - 1] = rank + i;
		MPI_Irecv(in, N, MPI_INT, left, 1, MPI_COMM_WORLD, &r[0]);
		MPI_Isend(out, N, MPI_INT, right, 1, MPI_COMM_WORLD, &r[1]);
		start_program(i);
		CHECK(MPI_Waitall(2, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS && in[N - 1] == left + i);
	}
	return finish();
}
