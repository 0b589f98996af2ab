/* Classes and codes that a program adds lie above MPI_ERR_LASTCODE, which differs. */
enum { OPENMPI_LASTCODE = 92, LASTCODE = 16383 };

static inline int32_t added_to(int code)
{
	return code > OPENMPI_LASTCODE ? code - OPENMPI_LASTCODE + LASTCODE : code;
}

static inline int added_from(int32_t code)
{
	return code > LASTCODE ? code - LASTCODE + OPENMPI_LASTCODE : code;
}
