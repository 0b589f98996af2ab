/* Arguments of Fortran's, and the names that its compilers give routines. Its special arguments are variables, and told by
   their addresses. */

extern char mpi_fortran_bottom_[], mpi_fortran_in_place_[], mpi_fortran_unweighted_[], mpi_fortran_weights_empty_[];
extern char mpi_fortran_status_ignore_[], mpi_fortran_statuses_ignore_[];

#define UNDEFINED (-32766)
#define IGNORE ((const MPI_Status *)0)
#define IN_PLACE ((const void *)mpi_fortran_in_place_)

static inline MPI_Status *ignored(MPI_Status *status)
{
	return (char *)status == mpi_fortran_status_ignore_ || (char *)status == mpi_fortran_statuses_ignore_ ? NULL : status;
}

static inline uintptr_t to_buffer(const void *buffer)
{
	if (buffer == IN_PLACE)
		return 1;
	if (buffer == AUTOMATIC)
		return 2;
	return buffer == mpi_fortran_bottom_ ? 0 : (uintptr_t)buffer;
}

static inline uintptr_t to_weights(const int *weights)
{
	if ((const char *)weights == mpi_fortran_unweighted_)
		return 10;
	return (const char *)weights == mpi_fortran_weights_empty_ ? 11 : (uintptr_t)weights;
}

/* Indices begin with 1. */
static inline void from_indices(int *indices, int n)
{
	for (int i = 0; i < n; i++)
		if (indices[i] >= 0)
			indices[i]++;
}

/* text_to returns a text without the blanks around it, which the caller frees. */
static char *text_to(const char *text, int length)
{
	while (length > 0 && text[length - 1] == ' ')
		length--;
	while (length > 0 && *text == ' ')
		text++, length--;
	char *copy = malloc((size_t)length + 1);
	if (!copy) {
		fprintf(stderr, "isthmus: no memory for a text of %d characters\n", length);
		abort();
	}
	memcpy(copy, text, (size_t)length);
	copy[length] = 0;
	return copy;
}

/* text_from fills a variable with a text and blanks. */
static void text_from(char *variable, int length, const char *text)
{
	const int n = (int)strlen(text);
	for (int i = 0; i < length; i++)
		variable[i] = i < n ? text[i] : ' ';
}

/* set_error returns an outcome to the program, unless that leaves the argument out, as it may with mpi_f08. */
static inline void set_error(MPI_Fint *ierr, int outcome)
{
	if (ierr)
		*ierr = outcome;
}

/* NAMED_ROUTINE begins a routine, and NAMED_FUNCTION a function, with the names that compilers give it. */
#define ALIAS(type, name, original, parameters) type name parameters __attribute__((weak, alias(#original)));
#define NAMED_FUNCTION(type, prefix, PREFIX, name, NAME, original, parameters) \
	type original parameters; \
	ALIAS(type, prefix##_##name##_, original, parameters) ALIAS(type, p##prefix##_##name##_, original, parameters) \
	ALIAS(type, prefix##_##name##__, original, parameters) ALIAS(type, p##prefix##_##name##__, original, parameters) \
	ALIAS(type, prefix##_##name, original, parameters) ALIAS(type, p##prefix##_##name, original, parameters) \
	ALIAS(type, PREFIX##_##NAME, original, parameters) ALIAS(type, P##PREFIX##_##NAME, original, parameters) \
	type original parameters
#define NAMED_ROUTINE(prefix, PREFIX, name, NAME, original, parameters) NAMED_FUNCTION(void, prefix, PREFIX, name, NAME, original, parameters)
