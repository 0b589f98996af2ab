/* Types of Fortran's that are asked for by their precision. */

#include "check.h"

/* The class of an error code. */
static int class(int code)
{
	int c = -1;
	MPI_Error_class(code, &c);
	return c;
}

/* sized checks a type without a name. */
static void sized(MPI_Datatype type, int want, int want_combiner, int n)
{
	int got = -1, integers = -1, addresses = -1, types = -1, combiner = -1;
	MPI_Datatype same = type;
	CHECK(MPI_Type_size(type, &got) == MPI_SUCCESS && got == want);
	CHECK(MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) == MPI_SUCCESS);
	CHECK(integers == n && addresses == 0 && types == 0 && combiner == want_combiner);
	CHECK(class(MPI_Type_free(&same)) == MPI_ERR_TYPE && same == type);
}

static void test_precise(void)
{
	MPI_Datatype real, same, type;
	double x = rank + 1, sum = 0;
	int arguments[2] = {-1, -1};
	CHECK(MPI_Type_create_f90_real(7, MPI_UNDEFINED, &real) == MPI_SUCCESS);
	sized(real, 8, MPI_COMBINER_F90_REAL, 2);
	CHECK(MPI_Type_create_f90_real(7, MPI_UNDEFINED, &same) == MPI_SUCCESS && same == real);
	CHECK(MPI_Type_get_contents(real, 2, 0, 0, arguments, NULL, NULL) == MPI_SUCCESS && arguments[0] == 7 && arguments[1] == MPI_UNDEFINED);
	CHECK(MPI_Allreduce(&x, &sum, 1, real, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && sum == size * (size + 1) / 2);
	CHECK(MPI_Type_create_f90_real(6, 37, &type) == MPI_SUCCESS && type != real);
	sized(type, 4, MPI_COMBINER_F90_REAL, 2);
	CHECK(MPI_Type_create_f90_complex(MPI_UNDEFINED, 38, &type) == MPI_SUCCESS);
	sized(type, 16, MPI_COMBINER_F90_COMPLEX, 2);
	CHECK(MPI_Type_create_f90_integer(5, &type) == MPI_SUCCESS);
	sized(type, 4, MPI_COMBINER_F90_INTEGER, 1);
	CHECK(MPI_Type_get_contents(type, 1, 0, 0, arguments, NULL, NULL) == MPI_SUCCESS && arguments[0] == 5);
	CHECK(MPI_Type_create_f90_integer(19, &type) == MPI_SUCCESS);
	sized(type, 16, MPI_COMBINER_F90_INTEGER, 1);
	CHECK(MPI_Type_create_f90_real(18, 4931, &type) == MPI_SUCCESS);
	sized(type, sizeof(long double), MPI_COMBINER_F90_REAL, 2);
	CHECK(MPI_Type_create_f90_complex(33, MPI_UNDEFINED, &type) == MPI_SUCCESS);
	sized(type, 32, MPI_COMBINER_F90_COMPLEX, 2);
	CHECK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 16, &type) == MPI_SUCCESS && type == MPI_REAL16);
	CHECK(MPI_Type_match_size(MPI_TYPECLASS_COMPLEX, 32, &type) == MPI_SUCCESS && type == MPI_COMPLEX32);
	CHECK(class(MPI_Type_create_f90_integer(39, &type)) == MPI_ERR_ARG);
	CHECK(class(MPI_Type_create_f90_real(34, MPI_UNDEFINED, &type)) == MPI_ERR_ARG);
	CHECK(class(MPI_Type_create_f90_real(MPI_UNDEFINED, MPI_UNDEFINED, &type)) == MPI_ERR_ARG);
	CHECK(class(MPI_Type_create_f90_real(-1, 5, &type)) == MPI_ERR_ARG);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	test_precise();
	return finish();
}
