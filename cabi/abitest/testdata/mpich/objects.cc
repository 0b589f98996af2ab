// C++ by MPICH's own library for it, as far as a program that begins and ends needs it.

#include <mpi.h>
#include <cstdio>

int main(int argc, char **argv)
{
	MPI::Init(argc, argv);
	int one = 1, sum = 0;
	MPI::COMM_WORLD.Allreduce(&one, &sum, 1, MPI::INT, MPI::SUM);
	if (MPI::COMM_WORLD.Get_rank() == 0)
		std::printf("passed by %d\n", sum);
	MPI::Finalize();
}
