/* Statuses of Open MPI's ABI, in C and in Fortran, from and to the core's. */

static inline void status_to(const MPI_Status *status, MPI_ABI_Status *abi)
{
	*abi = (MPI_ABI_Status){
		to_rank(status->MPI_SOURCE), to_tag(status->MPI_TAG), to_error(status->MPI_ERROR),
		status->cancelled, (unsigned)status->count, (unsigned)(status->count >> 32), {0, 0}};
}

static inline void status_from(MPI_Status *status, const MPI_ABI_Status *abi)
{
	status->MPI_SOURCE = from_rank(abi->source);
	status->MPI_TAG = from_tag(abi->tag);
	status->MPI_ERROR = from_error(abi->error);
	status->cancelled = abi->cancelled;
	status->count = (size_t)abi->count_hi << 32 | abi->count_lo;
}
