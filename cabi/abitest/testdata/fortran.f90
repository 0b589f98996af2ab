! Fortran through libraries for it: constants that these compare by address.

program fortran
  implicit none
  call before()
  call f08()
contains

  subroutine check(condition, line)
    use mpi
    logical, intent(in) :: condition
    integer, intent(in) :: line
    integer :: ierr
    if (condition) return
    print *, "check", line, "fails"
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine

  subroutine before()
    use mpi
    integer :: ierr, rank, size, up, down, left, grid, graph, kind, in, out, requests(2), got, sum
    integer :: dims(1), coords(1), other(1), from(1), to(1), none(1)
    logical :: periods(1), weighted
    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
    dims = size
    periods = .true.
    call MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, .false., grid, ierr)
    dims = 0
    periods = .false.
    call MPI_Cart_get(grid, 1, dims, periods, coords, ierr)
    call check(dims(1) == size .and. periods(1) .and. coords(1) == rank, 1)
    call MPI_Topo_test(grid, kind, ierr)
    call check(kind == MPI_CART, 2)
    call MPI_Cart_shift(grid, 0, 1, down, up, ierr)
    call MPI_Irecv(got, 1, MPI_INTEGER, down, 0, grid, requests(1), ierr)
    call MPI_Isend(rank, 1, MPI_INTEGER, up, 0, grid, requests(2), ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call check(got == mod(rank + size - 1, size), 3)
    call MPI_Sendrecv(rank, 1, MPI_INTEGER, down, 0, left, 1, MPI_INTEGER, up, 0, grid, MPI_STATUS_IGNORE, ierr)
    call check(left == mod(rank + 1, size), 4)
    from = down
    to = up
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, from, MPI_UNWEIGHTED, 1, to, MPI_UNWEIGHTED, &
      MPI_INFO_NULL, .false., graph, ierr)
    call MPI_Dist_graph_neighbors_count(graph, in, out, weighted, ierr)
    call check(in == 1 .and. out == 1 .and. .not. weighted, 5)
    call MPI_Dist_graph_neighbors(graph, 1, other, MPI_UNWEIGHTED, 0, none, MPI_UNWEIGHTED, ierr)
    call check(other(1) == down, 6)
    call MPI_Comm_free(graph, ierr)
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 0, none, none, none, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, .false., graph, ierr)
    call MPI_Dist_graph_neighbors_count(graph, in, out, weighted, ierr)
    call check(in == 0 .and. out == 0 .and. weighted, 7)
    sum = rank
    call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    call check(sum == size * (size - 1) / 2, 8)
  end subroutine

  subroutine f08()
    use mpi_f08
    integer :: rank, size, got, sum
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: status
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, size)
    call MPI_Irecv(got, 1, MPI_INTEGER, mod(rank + 1, size), 5, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(rank, 1, MPI_INTEGER, mod(rank + size - 1, size), 5, MPI_COMM_WORLD, requests(2))
    call MPI_Wait(requests(1), status)
    call check(got == mod(rank + 1, size) .and. status%MPI_SOURCE == got .and. status%MPI_TAG == 5, 9)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call MPI_Sendrecv(rank, 1, MPI_INTEGER, rank, 6, got, 1, MPI_INTEGER, rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call check(got == rank, 10)
    sum = 1
    call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call check(sum == size, 11)
    call MPI_Barrier(MPI_COMM_WORLD)
    if (rank == 0) print '(a,i0)', "passed by ", size
    call MPI_Finalize()
  end subroutine
end program
