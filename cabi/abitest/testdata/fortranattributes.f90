! Attributes in Fortran: integers, the standard's ones by value, and functions of the program's that copy and delete.

module functions
  use mpi
  implicit none
  integer :: copies = 0, deletions = 0
  integer(kind=MPI_ADDRESS_KIND) :: deleted = -1
contains

  subroutine check(condition, line)
    logical, intent(in) :: condition
    integer, intent(in) :: line
    integer :: ierr
    if (condition) return
    print *, "check", line, "fails"
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine

  subroutine copy(comm, key, extra, in, out, keep, ierr)
    integer :: comm, key, ierr
    integer(kind=MPI_ADDRESS_KIND) :: extra, in, out
    logical :: keep
    copies = copies + 1
    out = in + extra
    keep = in /= 13
    ierr = MPI_SUCCESS
  end subroutine

  subroutine delete(comm, key, value, extra, ierr)
    integer :: comm, key, ierr
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    deletions = deletions + 1
    deleted = value
    ierr = MPI_SUCCESS
  end subroutine
end module

program attributes
  use mpi
  use functions
  implicit none
  integer :: ierr, rank, size, key, shared, type, typekey, twin, world, tag
  integer(kind=MPI_ADDRESS_KIND) :: value, got, extra = 100
  logical :: flag
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)

  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, got, flag, ierr)
  call check(flag .and. got >= 32767, 1)
  call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, tag, flag, ierr)
  call check(flag .and. tag == got, 2)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, got, flag, ierr)
  call check(flag .and. got == MPI_ANY_SOURCE, 3)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, got, flag, ierr)
  call check(.not. flag, 4)

  call MPI_Comm_create_keyval(copy, delete, key, extra, ierr)
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, shared, extra, ierr)
  call check(key /= shared, 5)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, key, got, flag, ierr)
  call check(.not. flag, 6)
  value = 2_MPI_ADDRESS_KIND**40 + 7
  call MPI_Comm_set_attr(MPI_COMM_WORLD, key, value, ierr)
  value = -3
  call MPI_Comm_set_attr(MPI_COMM_WORLD, shared, value, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, world, ierr)
  call check(copies == 1, 7)
  call MPI_Comm_get_attr(world, key, got, flag, ierr)
  call check(flag .and. got == 2_MPI_ADDRESS_KIND**40 + 107, 8)
  call MPI_Comm_get_attr(world, shared, got, flag, ierr)
  call check(flag .and. got == -3, 9)
  call MPI_Comm_free(world, ierr)
  call check(deletions == 1 .and. deleted == 2_MPI_ADDRESS_KIND**40 + 107, 10)
  value = 13
  call MPI_Comm_set_attr(MPI_COMM_WORLD, key, value, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, world, ierr)
  call MPI_Comm_get_attr(world, key, got, flag, ierr)
  call check(copies == 2 .and. .not. flag, 11)
  call MPI_Comm_free(world, ierr)
  call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
  call check(deletions == 3 .and. deleted == 13, 12)

  call MPI_Type_contiguous(2, MPI_INTEGER, type, ierr)
  call MPI_Type_create_keyval(copy, delete, typekey, extra, ierr)
  call check(typekey /= key, 13)
  value = 5
  call MPI_Type_set_attr(type, typekey, value, ierr)
  call MPI_Type_dup(type, twin, ierr)
  call MPI_Type_get_attr(twin, typekey, got, flag, ierr)
  call check(flag .and. got == 105 .and. copies == 3, 14)
  call MPI_Type_free(twin, ierr)
  call check(deleted == 105, 15)
  call MPI_Type_free(type, ierr)
  call check(deleted == 5, 16)

  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a,i0)', "passed by ", size
  call MPI_Finalize(ierr)
end program
