/* Buffers and statuses of MPICH's ABI, from and to the core's, and what programs compiled for it take from the library
   besides functions of MPI. */

/* MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE, and MPI_IN_PLACE, in MPICH's ABI. */
#define IGNORE ((const MPI_Status *)1)
#define IN_PLACE ((const void *)-1)

static inline uintptr_t to_buffer(const void *buffer)
{
	return buffer == IN_PLACE ? 1 : (uintptr_t)buffer;
}

/* MPI_UNWEIGHTED and MPI_WEIGHTS_EMPTY are variables with the core's values. */
static inline uintptr_t to_weights(const int *weights)
{
	return (uintptr_t)weights;
}

static inline void status_to(const MPI_Status *status, MPI_ABI_Status *abi)
{
	unsigned high = (unsigned)status->count_hi_and_cancelled;
	*abi = (MPI_ABI_Status){
		to_rank(status->MPI_SOURCE), to_tag(status->MPI_TAG), to_error(status->MPI_ERROR),
		(int)(high & 1), (unsigned)status->count_lo, high >> 1, {0, 0}};
}

static inline void status_from(MPI_Status *status, const MPI_ABI_Status *abi)
{
	status->count_lo = (int)abi->count_lo;
	status->count_hi_and_cancelled = (int)(abi->count_hi << 1 | (unsigned)(abi->cancelled != 0));
	status->MPI_SOURCE = from_rank(abi->source);
	status->MPI_TAG = from_tag(abi->tag);
	status->MPI_ERROR = from_error(abi->error);
}

/* MPI_TYPE_DUP_FN, MPI_COMM_DUP_FN and MPI_DUP_FN of MPICH's ABI. */
int MPIR_Dup_fn(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *keep);
int MPIR_Dup_fn(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *keep)
{
	(void)comm, (void)keyval, (void)extra;
	*(void **)out = in;
	*keep = 1;
	return 0;
}

/* What MPICH's header has as variables. Weights have the core's values; its libraries for Fortran compare
   with the others, and set the first two. */
extern int *const MPI_UNWEIGHTED, *const MPI_WEIGHTS_EMPTY, *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;
extern int MPIR_F08_MPI_IN_PLACE, MPIR_F08_MPI_BOTTOM;
extern MPI_Status MPIR_F08_MPI_STATUS_IGNORE_OBJ, MPIR_F08_MPI_STATUSES_IGNORE_OBJ[1], *MPI_F08_STATUS_IGNORE, *MPI_F08_STATUSES_IGNORE;

int *const MPI_UNWEIGHTED = (int *)10, *const MPI_WEIGHTS_EMPTY = (int *)11, *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;
int MPIR_F08_MPI_IN_PLACE, MPIR_F08_MPI_BOTTOM;
MPI_Status MPIR_F08_MPI_STATUS_IGNORE_OBJ, MPIR_F08_MPI_STATUSES_IGNORE_OBJ[1];
MPI_Status *MPI_F08_STATUS_IGNORE = &MPIR_F08_MPI_STATUS_IGNORE_OBJ, *MPI_F08_STATUSES_IGNORE = MPIR_F08_MPI_STATUSES_IGNORE_OBJ;
