/* Values and names of the standard ABI in Fortran: the core's. */

#include "support.h"

char mpi_fortran_bottom_[4], mpi_fortran_in_place_[4], mpi_fortran_unweighted_[4], mpi_fortran_weights_empty_[4], mpi_fortran_buffer_automatic_[4];
char mpi_fortran_status_ignore_[32], mpi_fortran_statuses_ignore_[32], mpi_fortran_errcodes_ignore_[4], mpi_fortran_argv_null_[1], mpi_fortran_argvs_null_[1];

#define AUTOMATIC ((const void *)mpi_fortran_buffer_automatic_)
#include "fortran_support.h"

/* SAME defines the translations of a base whose values are the core's. */
#define SAME(base, core) \
	static inline core to_##base(int value) { return (core)value; } \
	static inline int from_##base(core value) { return (int)value; }

static inline void status_to(const MPI_Status *status, MPI_ABI_Status *abi) { memcpy(abi, status, sizeof *abi); }
static inline void status_from(MPI_Status *status, const MPI_ABI_Status *abi) { memcpy(status, abi, sizeof *abi); }

/* The module mpi_f08 calls MPI_X_f08 (MPI-5.0, section 19.1.5). */
#define ROUTINE(name, NAME, parameters) \
	ALIAS(void, mpi_##name##_f08_, isthmus_##name##_f, parameters) ALIAS(void, pmpi_##name##_f08_, isthmus_##name##_f, parameters) \
	NAMED_ROUTINE(mpi, MPI, name, NAME, isthmus_##name##_f, parameters)
#define FUNCTION(type, name, NAME, parameters) \
	ALIAS(type, mpi_##name##_f08_, isthmus_##name##_f, parameters) ALIAS(type, pmpi_##name##_f08_, isthmus_##name##_f, parameters) \
	NAMED_FUNCTION(type, mpi, MPI, name, NAME, isthmus_##name##_f, parameters)
