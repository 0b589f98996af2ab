/* A program that does not end with MPI_Finalize, in the way that the argument says. */

#define _GNU_SOURCE
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void finalize(void)
{
	MPI_Finalize();
}

/* child has a function run in a child made by fork, and returns the child's status. */
static int child(void (*function)(void))
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) {
		function();
		exit(7);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void nothing(void) {}

static void ask(void)
{
	int initialized, finalized;
	MPI_Initialized(&initialized);
	MPI_Finalized(&finalized);
	if (!initialized || finalized)
		exit(8);
}

static void call(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	const char *way = argv[1];
	if (strcmp(way, "before") == 0)
		atexit(finalize);
	begin(&argc, &argv);
	if (strcmp(way, "return") == 0)
		return 5;
	if (strcmp(way, "before") == 0)
		return 6;
	if (strcmp(way, "signal") == 0)
		raise(SIGTERM);
	CHECK(child(nothing) == 7);
	CHECK(child(ask) == 7);
	CHECK(child(call) == 1);
	return finish();
}
