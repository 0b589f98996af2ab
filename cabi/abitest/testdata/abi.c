/* What the standard's ABI adds: handles as numbers, its sizes, what Fortran's compiler does; types of pairs. */

#include "check.h"

/* The class of an error code. */
static int class(int code)
{
	int c = -1;
	MPI_Error_class(code, &c);
	return c;
}

static void test_handles(void)
{
	MPI_Comm comm;
	MPI_Group group;
	MPI_Datatype type;
	MPI_Info info;
	MPI_Request request;
	int in;
	CHECK(MPI_Comm_toint(MPI_COMM_WORLD) == 0x101 && MPI_Comm_fromint(0x101) == MPI_COMM_WORLD);
	CHECK(MPI_Type_toint(MPI_INT) == 0x209 && MPI_Type_fromint(0x209) == MPI_INT);
	CHECK(MPI_Op_toint(MPI_SUM) == 0x21 && MPI_Op_fromint(0x21) == MPI_SUM);
	CHECK(MPI_Group_fromint(MPI_Group_toint(MPI_GROUP_EMPTY)) == MPI_GROUP_EMPTY);
	CHECK(MPI_Errhandler_fromint(MPI_Errhandler_toint(MPI_ERRORS_RETURN)) == MPI_ERRORS_RETURN);
	CHECK(MPI_Message_fromint(MPI_Message_toint(MPI_MESSAGE_NO_PROC)) == MPI_MESSAGE_NO_PROC);
	CHECK(MPI_File_fromint(MPI_File_toint(MPI_FILE_NULL)) == MPI_FILE_NULL && MPI_Win_fromint(MPI_Win_toint(MPI_WIN_NULL)) == MPI_WIN_NULL);
	CHECK(MPI_Session_fromint(MPI_Session_toint(MPI_SESSION_NULL)) == MPI_SESSION_NULL);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_group(comm, &group);
	MPI_Type_contiguous(2, MPI_INT, &type);
	MPI_Info_create(&info);
	MPI_Irecv(&in, 1, MPI_INT, rank, 1, comm, &request);
	CHECK(MPI_Comm_toint(comm) > 4095 && MPI_Comm_fromint(MPI_Comm_toint(comm)) == comm);
	CHECK(MPI_Group_fromint(MPI_Group_toint(group)) == group && MPI_Type_fromint(MPI_Type_toint(type)) == type);
	CHECK(MPI_Info_fromint(MPI_Info_toint(info)) == info && MPI_Request_fromint(MPI_Request_toint(request)) == request);
	MPI_Send(&rank, 1, MPI_INT, rank, 1, comm);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Info_free(&info);
	MPI_Type_free(&type);
	MPI_Group_free(&group);
	MPI_Comm_free(&comm);
}

/* has reports whether a key of info has a value. */
static int has(MPI_Info info, const char *key, const char *value)
{
	char got[16] = "";
	int length = sizeof got, flag = 0;
	MPI_Info_get_string(info, key, &length, got, &flag);
	return flag && strcmp(got, value) == 0;
}

static void test_fortran(void)
{
	MPI_Info info;
	unsigned char yes[4] = {1, 2, 3, 4}, no[4] = {0}, got_yes[4] = {0}, got_no[4] = {9, 9, 9, 9};
	int set = -1;
	CHECK(MPI_Abi_get_info(&info) == MPI_SUCCESS);
	CHECK(has(info, "mpi_aint_size", "8") && has(info, "mpi_count_size", "8") && has(info, "mpi_offset_size", "8"));
	MPI_Info_free(&info);
	CHECK(MPI_Abi_get_fortran_info(&info) == MPI_SUCCESS && info == MPI_INFO_NULL);
	MPI_Info_create(&info);
	MPI_Info_set(info, "mpi_integer_size", "8");
	CHECK(class(MPI_Abi_set_fortran_info(info)) == MPI_ERR_ARG);
	MPI_Info_set(info, "mpi_integer_size", "4");
	CHECK(MPI_Abi_set_fortran_info(info) == MPI_SUCCESS && class(MPI_Abi_set_fortran_info(info)) == MPI_ERR_ABI);
	MPI_Info_free(&info);
	CHECK(MPI_Abi_get_fortran_info(&info) == MPI_SUCCESS && has(info, "mpi_integer_size", "4"));
	MPI_Info_free(&info);
	CHECK(MPI_Abi_get_fortran_booleans(4, got_yes, got_no, &set) == MPI_SUCCESS && !set);
	CHECK(class(MPI_Abi_set_fortran_booleans(3, yes, no)) == MPI_ERR_ARG);
	CHECK(MPI_Abi_set_fortran_booleans(4, yes, no) == MPI_SUCCESS && class(MPI_Abi_set_fortran_booleans(4, yes, no)) == MPI_ERR_ABI);
	CHECK(MPI_Abi_get_fortran_booleans(4, got_yes, got_no, &set) == MPI_SUCCESS && set);
	CHECK(memcmp(yes, got_yes, 4) == 0 && memcmp(no, got_no, 4) == 0);
	CHECK(MPI_Reduce_local(yes, got_no, 1, MPI_LOGICAL, MPI_LOR) == MPI_SUCCESS && memcmp(yes, got_no, 4) == 0);
	CHECK(MPI_Reduce_local(yes, got_no, 1, MPI_LOGICAL4, MPI_LXOR) == MPI_SUCCESS && memcmp(no, got_no, 4) == 0);
	CHECK(MPI_Abi_get_fortran_booleans(8, got_yes, got_no, &set) == MPI_SUCCESS && !set);
}

static void test_pairs(void)
{
	MPI_Datatype type = MPI_INT;
	CHECK(MPI_Type_get_value_index(MPI_FLOAT, MPI_INT, &type) == MPI_SUCCESS && type == MPI_FLOAT_INT);
	CHECK(MPI_Type_get_value_index(MPI_INT, MPI_INT, &type) == MPI_SUCCESS && type == MPI_2INT);
	CHECK(MPI_Type_get_value_index(MPI_CHAR, MPI_INT, &type) == MPI_SUCCESS && type == MPI_DATATYPE_NULL);
	CHECK(class(MPI_Type_get_value_index(MPI_DATATYPE_NULL, MPI_INT, &type)) == MPI_ERR_TYPE);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	test_handles();
	test_fortran();
	test_pairs();
	return finish();
}
