/* Handlers without SA_ONSTACK that use 64 KiB of stack, 10,000 times a second, while messages go: as
   many seconds as the argument says. They run on threads of the program only. */

#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

static __thread int is_own; /* this is a thread of the program */
static atomic_int is_over;
static atomic_long alarms, profiles, users, children, foreign;

static void handle(int sig)
{
	volatile char used[64 << 10];
	for (size_t i = 0; i < sizeof used; i += 64)
		used[i] = (char)sig;
	atomic_fetch_add(sig == SIGALRM ? &alarms : sig == SIGPROF ? &profiles : sig == SIGUSR1 ? &users : &children, 1 + used[0] - (char)sig);
	if (!is_own)
		atomic_fetch_add(&foreign, 1);
}

static void *send_signals(void *thread)
{
	const struct timespec pause = {0, 100000};
	while (!atomic_load(&is_over)) {
		nanosleep(&pause, NULL);
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		kill(getpid(), SIGCHLD);
	}
	return NULL;
}

static void exchange(int length, char *out, char *in)
{
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	memset(out, rank + length, (size_t)length);
	CHECK(MPI_Sendrecv(out, length, MPI_CHAR, right, 1, in, length, MPI_CHAR, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	CHECK(in[0] == (char)(left + length) && in[length - 1] == in[0]);
}

int main(int argc, char **argv)
{
	static char in[1 << 17], out[1 << 17];
	const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	struct sigaction act = {.sa_handler = handle, .sa_flags = SA_RESTART};
	pthread_t self = pthread_self(), sender;
	sigset_t all, mask;
	is_own = 1;
	sigfillset(&act.sa_mask); /* no more than three handlers interrupt one another */
	sigaction(SIGPROF, &act, NULL);
	signal(SIGCHLD, handle);
	begin(&argc, &argv);
	sigaction(SIGALRM, &act, NULL);
	signal(SIGUSR1, handle);
	sigfillset(&all); /* the sender inherits the mask */
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	CHECK(pthread_create(&sender, NULL, send_signals, &self) == 0);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	setitimer(ITIMER_PROF, &often, NULL);
	double end = MPI_Wtime() + atof(argv[1]);
	for (int over = 0; !over;) {
		for (int length = 1; length <= 1 << 17; length *= 4)
			exchange(length, out, in);
		int mine = MPI_Wtime() >= end;
		MPI_Allreduce(&mine, &over, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	setitimer(ITIMER_PROF, &never, NULL);
	atomic_store(&is_over, 1);
	pthread_join(sender, NULL);
	CHECK(alarms > 0 && profiles > 0 && users > 0 && children > 0);
	CHECK(foreign == 0);
	return finish();
}
