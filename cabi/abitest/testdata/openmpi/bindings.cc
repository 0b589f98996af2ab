// The bindings for C++ that MPI-3.0 removed: those of Open MPI's library run over ours.

#include <iostream>
#include <mpi.h>

int main(int argc, char **argv)
{
	MPI::Init(argc, argv);
	const int rank = MPI::COMM_WORLD.Get_rank(), size = MPI::COMM_WORLD.Get_size();
	int sum = 0, other = -1;
	MPI::COMM_WORLD.Allreduce(&rank, &sum, 1, MPI::INT, MPI::SUM);
	MPI::Intracomm half = MPI::COMM_WORLD.Split(rank % 2, rank);
	MPI::Status status;
	MPI::COMM_WORLD.Sendrecv(&rank, 1, MPI::INT, (rank + 1) % size, 1, &other, 1, MPI::INT, MPI::ANY_SOURCE, MPI::ANY_TAG, status);
	const bool right = sum == size * (size - 1) / 2 && other == (rank + size - 1) % size && status.Get_source() == other &&
		half.Get_size() == (size + 1 - rank % 2) / 2;
	half.Free();
	if (!right)
		MPI::COMM_WORLD.Abort(3);
	MPI::COMM_WORLD.Barrier();
	if (rank == 0)
		std::cout << "passed by " << size << std::endl;
	MPI::Finalize();
}
