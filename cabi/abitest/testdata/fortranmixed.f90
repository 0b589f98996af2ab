! A program in Fortran and C (fortranmixed.c): what each of them makes, the other has.

program fortranmixed
  use mpi
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    function c_key() bind(C)
      import
      integer(c_int) :: c_key
    end function
    function c_value(comm, key) bind(C)
      import
      integer(c_int), value :: comm, key
      integer(c_intptr_t) :: c_value
    end function
    function c_set(comm, key) bind(C)
      import
      integer(c_int), value :: comm, key
      integer(c_intptr_t) :: c_set
    end function
    function c_count(status, type) bind(C)
      import
      integer(c_int) :: status(*), c_count
      integer(c_int), value :: type
    end function
  end interface
  integer :: ierr, rank, size, key, comm, ours, status(MPI_STATUS_SIZE), got(3)
  integer(MPI_ADDRESS_KIND) :: value
  logical :: there
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
  key = c_key()
  call MPI_Comm_set_attr(comm, key, -42_MPI_ADDRESS_KIND, ierr)
  call check(c_value(comm, key) == -42, 1)
  call MPI_Comm_dup(comm, ours, ierr)
  call MPI_Comm_get_attr(ours, key, value, there, ierr)
  call check(there .and. value == -42 .and. c_value(ours, key) == -42, 2)
  call check(c_set(ours, key) /= 0 .and. c_value(ours, key) == 77, 3)
  call MPI_Comm_get_attr(ours, key, value, there, ierr)
  call check(there .and. value == c_set(ours, key), 5)
  call MPI_Sendrecv([1, 2], 2, MPI_INTEGER, rank, 6, got, 3, MPI_INTEGER, rank, 6, ours, status, ierr)
  call check(c_count(status, MPI_INTEGER) == 602, 4)
  call MPI_Comm_free(ours, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a,i0)', "passed by ", size
  call MPI_Finalize(ierr)
contains

  subroutine check(condition, line)
    logical, intent(in) :: condition
    integer, intent(in) :: line
    if (condition) return
    print *, "check", line, "fails"
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine
end program
