/* The library is loaded by dlopen, as plug-ins load it: its functions are in nobody's scope. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

#if defined OPEN_MPI
#define LIBRARY "libmpi.so.40"
/* Handles are addresses of the library's objects, which the header takes from a library that is linked. */
#undef MPI_COMM_WORLD
#undef MPI_INT
#undef MPI_SUM
#define MPI_COMM_WORLD ((MPI_Comm)dlsym(library, "ompi_mpi_comm_world"))
#define MPI_INT ((MPI_Datatype)dlsym(library, "ompi_mpi_int"))
#define MPI_SUM ((MPI_Op)dlsym(library, "ompi_mpi_op_sum"))
#elif defined MPICH_VERSION
#define LIBRARY "libmpich.so.12"
#else
#define LIBRARY "libmpi_abi.so.1"
#endif

/* load stores the address of a function. */
static void load(const char *name, void *function)
{
	*(void **)function = dlsym(library, name);
	if (*(void **)function == NULL)
		exit(4);
}

static void handle(int sig)
{
	(void)sig;
}

int main(void)
{
	int (*init)(int *, char ***), (*finalize)(void), (*comm_rank)(MPI_Comm, int *), (*comm_size)(MPI_Comm, int *),
		(*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
	int rank = -1, size = -1, sum = 0;
	struct sigaction now;
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	signal(SIGUSR1, handle); /* goes past the library */
	load("MPI_Init", &init);
	load("MPI_Finalize", &finalize);
	load("MPI_Comm_rank", &comm_rank);
	load("MPI_Comm_size", &comm_size);
	load("MPI_Allreduce", &allreduce);
	init(NULL, NULL);
	if (sigaction(SIGUSR1, NULL, &now) != 0 || now.sa_handler != handle || !(now.sa_flags & SA_ONSTACK))
		return 5;
	comm_rank(MPI_COMM_WORLD, &rank);
	comm_size(MPI_COMM_WORLD, &size);
	allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != size * (size - 1) / 2)
		return 6;
	if (rank == 0)
		printf("passed by %d\n", size);
	finalize();
	dlclose(library);
	return 0;
}
