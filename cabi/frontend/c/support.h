/* What all front-ends need besides the generated functions. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A status of the standard ABI, for front-ends of others; its last five fields are the core's. */
typedef struct {
	int source, tag, error, cancelled;
	unsigned count_lo, count_hi;
	int reserved[2];
} MPI_ABI_Status;

/* isthmus_enter is called before each call of the core: a thread's first call prepares it. */
extern __thread int isthmus_entered __attribute__((tls_model("initial-exec")));
void isthmus_enter_first(const char *name);
int isthmus_is_initialized(void);
int isthmus_is_finalized(void);

static inline void isthmus_enter(const char *name)
{
	if (__builtin_expect(!isthmus_entered, 0))
		isthmus_enter_first(name);
}

/* isthmus_missing ends the program at a function that the core does not have. The launcher then
   ends the other ranks. */
static void __attribute__((noreturn, unused)) isthmus_missing(const char *name)
{
	fflush(NULL);
	fprintf(stderr, "isthmus: the program calls %s, which this library does not have yet: run it with the MPI that it was compiled for; docs/c-programs.md says what there is\n", name);
	_exit(1);
}

/* isthmus_narrow is a count for a function whose counts are of type int; -32766 is MPI_UNDEFINED,
   of all ABIs, where it does not fit. */
static inline int isthmus_narrow(int64_t n)
{
	return n > INT_MAX ? -32766 : (int)n;
}
