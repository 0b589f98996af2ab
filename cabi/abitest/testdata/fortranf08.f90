! The module mpi_f08: handles and statuses with types, errors that are left out, large counts, and functions of the program's.

module functions
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: deletions = 0
contains

  subroutine check(condition, line)
    logical, intent(in) :: condition
    integer, intent(in) :: line
    if (condition) return
    print *, "check", line, "fails"
    call MPI_Abort(MPI_COMM_WORLD, 3)
  end subroutine

  subroutine add(in, inout, n, datatype)
    type(c_ptr), value :: in, inout
    integer :: n
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    call c_f_pointer(in, a, [n])
    call c_f_pointer(inout, b, [n])
    call check(datatype == MPI_INTEGER, 1)
    b = b + a
  end subroutine

  subroutine addlarge(in, inout, n, datatype)
    type(c_ptr), value :: in, inout
    integer(MPI_COUNT_KIND) :: n
    type(MPI_Datatype) :: datatype
    integer :: few
    few = int(n)
    call add(in, inout, few, datatype)
  end subroutine

  subroutine twice(comm, key, extra, in, out, keep, ierr)
    type(MPI_Comm) :: comm
    integer :: key, ierr
    integer(MPI_ADDRESS_KIND) :: extra, in, out
    logical :: keep
    call check(comm == MPI_COMM_WORLD, 2)
    out = 2 * in + extra
    keep = .true.
    ierr = MPI_SUCCESS
  end subroutine

  subroutine deleted(comm, key, value, extra, ierr)
    type(MPI_Comm) :: comm
    integer :: key, ierr
    integer(MPI_ADDRESS_KIND) :: value, extra
    deletions = deletions + 1
    ierr = MPI_SUCCESS
  end subroutine

  subroutine handle(comm, code)
    type(MPI_Comm) :: comm
    integer :: code, class
    call MPI_Error_class(code, class)
    call check(class == MPI_ERR_RANK .and. comm == MPI_COMM_WORLD, 3)
    deletions = deletions + 100
  end subroutine
end module

program fortranf08
  use functions
  implicit none
  integer :: rank, size, provided, ierr
  logical :: flag
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided)
  call check(provided == MPI_THREAD_MULTIPLE, 10)
  call MPI_Initialized(flag)
  call check(flag, 11)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call check(ierr == MPI_SUCCESS, 12)
  call PMPI_Comm_size(MPI_COMM_WORLD, size)
  call messages()
  call requests()
  call large()
  call texts()
  call attributes()
  call operations()
  call memory()
  call types()
  call graphs()
  call errors()
  call sessions()
  call MPI_Barrier(MPI_COMM_WORLD)
  if (rank == 0) print '(a,i0)', "passed by ", size
  call MPI_Finalize()
contains

  subroutine messages()
    integer :: grid(4, 6), got(6), old(MPI_STATUS_SIZE), n, up, down
    double precision :: x, start
    type(MPI_Status) :: status, copy
    type(MPI_Comm) :: twin
    type(MPI_Group) :: group
    start = MPI_Wtime()
    up = mod(rank + 1, size)
    down = mod(rank + size - 1, size)
    grid = 0
    grid(2, :) = [1, 2, 3, 4, 5, rank]
    call MPI_Comm_dup(MPI_COMM_WORLD, twin)
    call check(twin /= MPI_COMM_WORLD .and. twin /= MPI_COMM_NULL, 20)
    call MPI_Sendrecv(grid(2, :), 6, MPI_INTEGER, up, 4, got, 6, MPI_INTEGER, down, 4, twin, status) ! a section
    call check(all(got == [1, 2, 3, 4, 5, down]), 21)
    call check(status%MPI_SOURCE == down .and. status%MPI_TAG == 4, 22)
    call MPI_Get_count(status, MPI_INTEGER, n)
    call check(n == 6, 23)
    call MPI_Status_f082f(status, old)
    call check(old(MPI_SOURCE) == down .and. old(MPI_TAG) == 4, 24)
    call MPI_Status_f2f08(old, copy)
    call MPI_Get_count(copy, MPI_INTEGER, n)
    call check(n == 6, 25)
    call MPI_Comm_group(twin, group)
    call MPI_Group_size(group, n)
    call check(n == size, 26)
    call MPI_Group_free(group)
    call check(group == MPI_GROUP_NULL, 27)
    call MPI_Comm_free(twin)
    call check(twin == MPI_COMM_NULL, 28)
    x = 2
    call MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE_PRECISION, MPI_PROD, MPI_COMM_WORLD)
    call check(abs(x - 2d0**size) < 1d-9 .and. MPI_Wtime() >= start, 29)
  end subroutine

  subroutine requests()
    type(MPI_Request) :: r(3)
    type(MPI_Status) :: states(3), state
    integer :: in(3), i, n, indices(3)
    do i = 1, 3
      call MPI_Irecv(in(i), 1, MPI_INTEGER, rank, i, MPI_COMM_WORLD, r(i))
    end do
    call MPI_Send(7, 1, MPI_INTEGER, rank, 2, MPI_COMM_WORLD)
    call MPI_Waitany(3, r, i, state)
    call check(i == 2 .and. in(2) == 7 .and. state%MPI_TAG == 2 .and. r(2) == MPI_REQUEST_NULL, 30)
    call MPI_Send(8, 1, MPI_INTEGER, rank, 3, MPI_COMM_WORLD)
    call MPI_Waitsome(3, r, n, indices, states)
    call check(n == 1 .and. indices(1) == 3 .and. states(1)%MPI_TAG == 3, 31)
    call MPI_Send(9, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD)
    call MPI_Waitall(3, r, MPI_STATUSES_IGNORE)
    call check(all(in == [9, 7, 8]) .and. all(r == MPI_REQUEST_NULL), 32)
  end subroutine

  subroutine large()
    integer(MPI_COUNT_KIND) :: n = 2, bytes, one(1) = 1
    integer(MPI_ADDRESS_KIND) :: place(1) = 0
    integer :: a(2), b(2), few, counts(1) = 1, places(1) = 0
    type(MPI_Request) :: r
    type(MPI_Status) :: status
    type(MPI_Datatype) :: pair
    a = [rank, 5]
    call MPI_Irecv(b, n, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, r)
    call MPI_Send(a, n, MPI_INTEGER, rank, 0, MPI_COMM_WORLD)
    call MPI_Wait(r, status)
    call MPI_Get_count(status, MPI_INTEGER, n)
    call MPI_Get_count(status, MPI_INTEGER, few)
    call check(n == 2 .and. few == 2 .and. all(a == b), 40)
    call MPI_Type_vector(n, 1_MPI_COUNT_KIND, 3_MPI_COUNT_KIND, MPI_INTEGER, pair)
    call MPI_Type_size(pair, bytes)
    call check(bytes == 8, 41)
    call MPI_Type_free(pair)
    call MPI_Allgatherv(rank, 1_MPI_COUNT_KIND, MPI_INTEGER, b, one, place, MPI_INTEGER, MPI_COMM_SELF)
    call MPI_Allgatherv(rank, 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, MPI_COMM_SELF)
    call check(b(1) == rank, 42)
  end subroutine

  subroutine texts()
    character(MPI_MAX_OBJECT_NAME) :: name
    character(12) :: value
    integer :: length
    type(MPI_Info) :: info
    call MPI_Comm_set_name(MPI_COMM_WORLD, " my world ")
    call MPI_Comm_get_name(MPI_COMM_WORLD, name, length)
    call check(length == 8 .and. name == "my world", 50)
    call MPI_Info_create(info)
    call MPI_Info_set(info, "key", "a value")
    length = 12
    call MPI_Info_get_string(info, "key", length, value, flag)
    call check(flag .and. length == 7 .and. value == "a value", 51)
    length = 0
    call MPI_Info_get_string(info, "key", length, value, flag)
    call check(flag .and. length == 7, 52)
    length = 3
    call MPI_Info_get_string(info, "key", length, value, flag)
    call check(flag .and. length == 7 .and. value == "a v", 53)
    call MPI_Info_free(info)
    call check(info == MPI_INFO_NULL, 54)
    call MPI_Info_create_env(info)
    call MPI_Info_free(info)
  end subroutine

  subroutine attributes()
    integer :: key
    integer(MPI_ADDRESS_KIND) :: value
    type(MPI_Comm) :: comm
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag)
    call check(flag .and. value >= 32767, 60)
    call MPI_Comm_create_keyval(twice, deleted, key, 5_MPI_ADDRESS_KIND)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, -3_MPI_ADDRESS_KIND)
    call MPI_Comm_dup(MPI_COMM_WORLD, comm)
    call MPI_Comm_get_attr(comm, key, value, flag)
    call check(flag .and. value == -1, 61)
    call MPI_Comm_free(comm)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key)
    call MPI_Comm_free_keyval(key)
    call check(deletions == 2 .and. key == MPI_KEYVAL_INVALID, 62)
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
    call MPI_Comm_free_keyval(key)
  end subroutine

  subroutine operations()
    type(MPI_Op) :: op
    integer :: sum, n
    call MPI_Op_create(add, .true., op)
    call MPI_Allreduce(rank, sum, 1, MPI_INTEGER, op, MPI_COMM_WORLD)
    call check(sum == size * (size - 1) / 2, 70)
    call MPI_Op_free(op)
    call check(op == MPI_OP_NULL, 71)
    call MPI_Op_create_c(addlarge, .true., op)
    call MPI_Allreduce(rank, n, 1_MPI_COUNT_KIND, MPI_INTEGER, op, MPI_COMM_WORLD)
    call check(sum == n, 72)
    call MPI_Op_free(op)
  end subroutine

  subroutine memory()
    type(c_ptr) :: address, back
    integer, pointer :: room(:)
    integer :: bytes
    call MPI_Alloc_mem(4096_MPI_ADDRESS_KIND, MPI_INFO_NULL, address)
    call c_f_pointer(address, room, [1024])
    room = 7
    call MPI_Buffer_attach(room, 4096)
    call MPI_Bsend(rank, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF)
    call MPI_Recv(bytes, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call MPI_Buffer_detach(back, bytes)
    call check(bytes == 4096 .and. c_associated(address, back), 80)
    call MPI_Free_mem(room)
  end subroutine

  subroutine types()
    integer(MPI_ADDRESS_KIND) :: places(2), low, extent
    integer, target :: x, y
    integer :: got(2)
    type(MPI_Datatype) :: pair
    call MPI_Get_address(x, places(1))
    call MPI_Get_address(y, places(2))
    call MPI_Type_create_struct(2, [1, 1], places, [MPI_INTEGER, MPI_INTEGER], pair)
    call MPI_Type_commit(pair)
    x = 10 * rank
    y = x + 1
    call MPI_Sendrecv(MPI_BOTTOM, 1, pair, rank, 0, got, 2, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call check(all(got == [10 * rank, 10 * rank + 1]), 90)
    call MPI_Type_get_extent(pair, low, extent)
    call check(low == min(places(1), places(2)) .and. extent > 0, 91)
    call MPI_Type_free(pair)
    call check(MPI_Aint_diff(places(2), places(1)) == places(2) - places(1), 92)
  end subroutine

  subroutine graphs()
    type(MPI_Comm) :: grid, graph
    integer :: dims(1), coords(1), in, out, from(1), to(1)
    logical :: periods(1), weighted
    dims = size
    periods = .true.
    call MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, .false., grid)
    periods = .false.
    call MPI_Cart_get(grid, 1, dims, periods, coords)
    call check(periods(1) .and. coords(1) == rank, 100)
    call MPI_Cart_shift(grid, 0, 1, from(1), to(1))
    call MPI_Dist_graph_create_adjacent(grid, 1, from, MPI_UNWEIGHTED, 1, to, MPI_UNWEIGHTED, MPI_INFO_NULL, .false., graph)
    call MPI_Dist_graph_neighbors_count(graph, in, out, weighted)
    call check(in == 1 .and. out == 1 .and. .not. weighted, 101)
  end subroutine

  subroutine errors()
    type(MPI_Errhandler) :: handler
    integer :: code
    deletions = 0
    call MPI_Comm_create_errhandler(handle, handler)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler)
    call MPI_Send(rank, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD, code)
    call check(deletions == 100 .and. code == MPI_ERR_RANK, 110)
    call MPI_Send(rank, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD)
    call check(deletions == 200, 111)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL)
    call MPI_Errhandler_free(handler)
  end subroutine

  subroutine sessions()
    type(MPI_Session) :: session
    integer :: n, length
    character(MPI_MAX_PSET_NAME_LEN) :: name
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session)
    call MPI_Session_get_num_psets(session, MPI_INFO_NULL, n)
    length = 0
    call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, length, name)
    call check(n >= 2 .and. length == 11, 120)
    call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, length, name)
    call check(name == "mpi://WORLD", 121)
    call MPI_Session_finalize(session)
  end subroutine
end program
