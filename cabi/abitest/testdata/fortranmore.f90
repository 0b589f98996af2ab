! What Fortran has otherwise than C: texts, indices, attributes, functions of the program's, and types of old.

module functions
  use mpi
  implicit none
  integer :: deletions = 0
contains

  subroutine check(condition, line)
    logical, intent(in) :: condition
    integer, intent(in) :: line
    integer :: ierr
    if (condition) return
    print *, "check", line, "fails"
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine

  subroutine add(in, inout, n, datatype)
    integer :: n, datatype, in(n), inout(n)
    call check(datatype == MPI_INTEGER, 1)
    inout = inout + in
  end subroutine

  subroutine twice(comm, key, extra, in, out, keep, ierr)
    integer :: comm, key, ierr
    integer(MPI_ADDRESS_KIND) :: extra, in, out
    logical :: keep
    out = 2 * in + extra
    keep = .true.
    ierr = MPI_SUCCESS
  end subroutine

  subroutine deleted(comm, key, value, extra, ierr)
    integer :: comm, key, ierr
    integer(MPI_ADDRESS_KIND) :: value, extra
    deletions = deletions + 1
    ierr = MPI_SUCCESS
  end subroutine

  subroutine handle(comm, code)
    integer :: comm, code, class, ierr
    call MPI_Error_class(code, class, ierr)
    call check(class == MPI_ERR_RANK, 2)
    deletions = deletions + 100
  end subroutine
end module

program fortranmore
  use functions
  implicit none
  integer :: ierr, rank, size, provided
  logical :: flag
  call MPI_Initialized(flag, ierr)
  call check(.not. flag, 10)
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided, ierr)
  call check(provided == MPI_THREAD_MULTIPLE, 11)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call texts()
  call requests()
  call attributes()
  call operations()
  call types()
  call errors()
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a,i0)', "passed by ", size
  call MPI_Finalize(ierr)
contains

  subroutine texts()
    character(MPI_MAX_OBJECT_NAME) :: name
    character(12) :: value
    character(MPI_MAX_PROCESSOR_NAME) :: host
    integer :: length, info, n
    call MPI_Comm_set_name(MPI_COMM_WORLD, "  my world   ", ierr)
    name = "!"
    call MPI_Comm_get_name(MPI_COMM_WORLD, name, length, ierr)
    call check(length == 8 .and. name == "my world", 20)
    call MPI_Get_processor_name(host, length, ierr)
    call check(length > 0 .and. len_trim(host) == length, 21)
    call MPI_Info_create(info, ierr)
    call MPI_Info_set(info, "key ", " a value ", ierr)
    call MPI_Info_get(info, "key", 12, value, flag, ierr)
    call check(flag .and. value == "a value", 22)
    value = "kept"
    call MPI_Info_get(info, "none", 12, value, flag, ierr)
    call check(.not. flag .and. value == "kept", 23)
    call MPI_Info_get_nkeys(info, n, ierr)
    call MPI_Info_free(info, ierr)
    call check(n == 1 .and. info == MPI_INFO_NULL, 24)
  end subroutine

  subroutine requests()
    integer :: r(3), in(3), i, n, indices(3), states(MPI_STATUS_SIZE, 3), state(MPI_STATUS_SIZE), got
    do i = 1, 3
      call MPI_Irecv(in(i), 1, MPI_INTEGER, rank, i, MPI_COMM_WORLD, r(i), ierr)
    end do
    call MPI_Send(7, 1, MPI_INTEGER, rank, 2, MPI_COMM_WORLD, ierr)
    call MPI_Waitany(3, r, i, state, ierr)
    call check(i == 2 .and. in(2) == 7 .and. state(MPI_TAG) == 2 .and. state(MPI_SOURCE) == rank .and. r(2) == MPI_REQUEST_NULL, 30)
    call MPI_Get_count(state, MPI_INTEGER, got, ierr)
    call check(got == 1, 31)
    call MPI_Send(8, 1, MPI_INTEGER, rank, 3, MPI_COMM_WORLD, ierr)
    call MPI_Waitsome(3, r, n, indices, states, ierr)
    call check(n == 1 .and. indices(1) == 3 .and. states(MPI_TAG, 1) == 3, 32)
    call MPI_Testany(3, r, i, flag, MPI_STATUS_IGNORE, ierr)
    call check(.not. flag, 33)
    call MPI_Send(9, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, ierr)
    call MPI_Wait(r(1), MPI_STATUS_IGNORE, ierr)
    call MPI_Waitany(3, r, i, MPI_STATUS_IGNORE, ierr)
    call check(i == MPI_UNDEFINED .and. all(in == [9, 7, 8]), 34)
  end subroutine

  subroutine attributes()
    integer :: key, comm, old
    integer(MPI_ADDRESS_KIND) :: value
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
    call check(flag .and. value >= 32767, 40)
    call MPI_Comm_create_keyval(twice, deleted, key, 5_MPI_ADDRESS_KIND, ierr)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, -3_MPI_ADDRESS_KIND, ierr)
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
    call MPI_Comm_get_attr(comm, key, value, flag, ierr)
    call check(flag .and. value == -1, 41)
    call MPI_Comm_free(comm, ierr)
    call check(deletions == 1, 42)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    call MPI_Comm_free_keyval(key, ierr)
    call check(deletions == 2 .and. key == MPI_KEYVAL_INVALID, 43)
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND, ierr)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, 11_MPI_ADDRESS_KIND, ierr)
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
    call MPI_Comm_get_attr(comm, key, value, flag, ierr)
    call check(flag .and. value == 11, 44)
    call MPI_Attr_get(comm, key, old, flag, ierr)
    call check(flag .and. old == 11, 45)
    call MPI_Comm_free(comm, ierr)
  end subroutine

  subroutine operations()
    integer :: op, sum
    call MPI_Op_create(add, .true., op, ierr)
    call MPI_Allreduce(rank + 1, sum, 1, MPI_INTEGER, op, MPI_COMM_WORLD, ierr)
    call check(sum == size * (size + 1) / 2, 50)
    call MPI_Op_free(op, ierr)
    call check(op == MPI_OP_NULL, 51)
  end subroutine

  subroutine types()
    integer :: pair, made, part(2), n, got(2)
    integer(MPI_ADDRESS_KIND) :: places(2), low, extent
    integer, target :: x, y
    call MPI_Get_address(x, places(1), ierr)
    call MPI_Get_address(y, places(2), ierr)
    call MPI_Type_create_hindexed(2, [1, 1], places, MPI_INTEGER, pair, ierr)
    call MPI_Type_commit(pair, ierr)
    x = 10 * rank
    y = x + 1
    call MPI_Sendrecv(MPI_BOTTOM, 1, pair, rank, 0, got, 2, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call check(all(got == [10 * rank, 10 * rank + 1]), 60)
    call MPI_Type_free(pair, ierr)
    call MPI_Type_create_struct(2, [1, 1], [0_MPI_ADDRESS_KIND, 8_MPI_ADDRESS_KIND], &
      [MPI_INTEGER, MPI_DOUBLE_PRECISION], made, ierr)
    call MPI_Type_get_extent(made, low, extent, ierr)
    call MPI_Type_size(made, n, ierr)
    call check(low == 0 .and. extent == 16 .and. n == 12, 61)
    part = 0
    call MPI_Type_free(made, ierr)
    call check(made == MPI_DATATYPE_NULL, 62)
  end subroutine

  subroutine errors()
    integer :: handler, got, code, length
    character(MPI_MAX_ERROR_STRING) :: text
    call MPI_Comm_create_errhandler(handle, handler, ierr)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler, ierr)
    deletions = 0
    call MPI_Send(rank, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD, code)
    call check(deletions == 100 .and. code == MPI_ERR_RANK, 70)
    call MPI_Error_string(code, text, length, ierr)
    call check(length > 0 .and. len_trim(text) == length, 71)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, ierr)
    call MPI_Errhandler_free(handler, ierr)
    call MPI_Comm_get_errhandler(MPI_COMM_WORLD, got, ierr)
    call check(got == MPI_ERRORS_ARE_FATAL, 72)
  end subroutine
end program
