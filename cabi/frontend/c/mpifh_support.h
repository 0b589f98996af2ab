/* Values and names of Open MPI's ABI in Fortran. */

#include "support.h"
#include "openmpi_codes.h"

#define AUTOMATIC NULL /* MPI_BUFFER_AUTOMATIC: not there */
#include "fortran_support.h"

/* Open MPI's library for mpi_f08 calls ompi_X_f. EARLY is for the routines that Open MPI has as MPIX_X. */
#define ROUTINE(name, NAME, parameters) NAMED_ROUTINE(mpi, MPI, name, NAME, ompi_##name##_f, parameters)
#define EARLY(name, NAME, parameters) NAMED_ROUTINE(mpix, MPIX, name, NAME, ompix_##name##_f, parameters)
#define FUNCTION(type, name, NAME, parameters) \
	ALIAS(type, mpi_##name##_f90_, ompi_##name##_f, parameters) \
	NAMED_FUNCTION(type, mpi, MPI, name, NAME, ompi_##name##_f, parameters)
