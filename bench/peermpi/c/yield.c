/* Loaded before MPICH, has it give the processor away when it polled in vain.
 * MPICH 4.0 itself polls on, and where ranks share a processor each then keeps
 * the others waiting for whole time slices. (Open MPI has a setting for that.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*progress)(void *);
	if (progress == 0)
		progress = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
	unsigned done = progress(worker);
	if (done == 0)
		sched_yield();
	return done;
}
