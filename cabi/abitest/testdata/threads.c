/* The library leaves the program's masks, stacks and handlers as they were, on each thread. */

#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Old programs call what the header warns of. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { LARGE = 256 << 10 };

static size_t stack_size(void)
{
	stack_t now;
	CHECK(sigaltstack(NULL, &now) == 0);
	return now.ss_flags & SS_DISABLE ? 0 : now.ss_size;
}

static void enter(void)
{
	int version, subversion;
	MPI_Get_version(&version, &subversion);
}

/* Signals that a thread blocked stay blocked, those that Go needs for itself too. */
static void masks(void)
{
	sigset_t blocked, before, now;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigaddset(&blocked, SIGPROF);
	sigaddset(&blocked, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &blocked, &before);
	enter();
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	for (int sig = 1; sig < SIGRTMAX; sig++)
		CHECK(sigismember(&now, sig) == (sigismember(&before, sig) || sigismember(&blocked, sig)));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static pthread_key_t key;

/* A destructor of the program's may call MPI as well. */
static void at_end(void *unused)
{
	(void)unused;
	enter();
	CHECK(stack_size() >= LARGE);
}

static void *fresh(void *unused)
{
	CHECK(stack_size() == 0);
	CHECK(pthread_setspecific(key, &key) == 0);
	masks();
	CHECK(stack_size() >= LARGE);
	return unused;
}

static void *with_small_stack(void *unused)
{
	static char small[16 << 10];
	const stack_t own = {.ss_sp = small, .ss_size = sizeof small};
	CHECK(sigaltstack(&own, NULL) == 0);
	enter();
	CHECK(stack_size() >= LARGE);
	return unused;
}

static void *with_large_stack(void *unused)
{
	static char large[LARGE];
	const stack_t own = {.ss_sp = large, .ss_size = sizeof large}, none = {.ss_flags = SS_DISABLE};
	stack_t now;
	CHECK(sigaltstack(&own, NULL) == 0);
	enter();
	CHECK(sigaltstack(&none, &now) == 0 && now.ss_sp == large);
	return unused;
}

static void run(void *(*function)(void *))
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* The number of mappings: a stack and the page below it are two. */
static long mappings(void)
{
	long lines = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	for (int c; (c = getc(f)) != EOF;)
		lines += c == '\n';
	fclose(f);
	return lines;
}

/* Go's threads have blocked what the program's handlers are for; this thread is the program's only one. */
static void others(void)
{
	char command[200];
	snprintf(command, sizeof command, "for t in /proc/%d/task/*; do [ ${t##*/} = %d ] || grep -h SigBlk $t/status; done", (int)getpid(), (int)getpid());
	FILE *f = popen(command, "r");
	unsigned long long mask, wanted = 0;
	static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGALRM, SIGVTALRM, SIGUSR1, SIGUSR2, SIGIO, SIGWINCH, SIGCONT};
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		wanted |= 1ULL << (signals[i] - 1);
	int threads = 0;
	for (; f != NULL && fscanf(f, " SigBlk: %llx", &mask) == 1; threads++)
		CHECK((mask & wanted) == wanted);
	CHECK(threads > 0 && pclose(f) != -1); /* a thread may have ended meanwhile */
}

static int calls;

static void handle(int sig)
{
	calls += sig == SIGUSR1;
}

/* The functions that install handlers do what the C library's do. */
static void handlers(void)
{
	struct sigaction act = {.sa_handler = handle, .sa_flags = SA_NODEFER}, old;
	CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigaction(SIGUSR1, NULL, &old) == 0);
	CHECK(old.sa_handler == handle && old.sa_flags & SA_NODEFER && old.sa_flags & SA_ONSTACK);
	CHECK(signal(SIGUSR1, SIG_IGN) == handle && raise(SIGUSR1) == 0 && calls == 0);
	CHECK(ssignal(SIGUSR1, handle) == SIG_IGN && raise(SIGUSR1) == 0 && raise(SIGUSR1) == 0 && calls == 2);
	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_flags & SA_ONSTACK && old.sa_flags & SA_RESTART && sigismember(&old.sa_mask, SIGUSR1));
	siginterrupt(SIGUSR1, 1);
	CHECK(signal(SIGUSR1, handle) == handle && sigaction(SIGUSR1, NULL, &old) == 0 && !(old.sa_flags & SA_RESTART));
	CHECK(sysv_signal(SIGUSR1, handle) == handle && raise(SIGUSR1) == 0 && calls == 3);
	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
	CHECK(sigset(SIGUSR1, handle) == SIG_DFL && sigset(SIGUSR1, SIG_HOLD) == handle);
	CHECK(raise(SIGUSR1) == 0 && calls == 3 && sigset(SIGUSR1, handle) == SIG_HOLD && calls == 4);
	CHECK(signal(SIGKILL, handle) == SIG_ERR && signal(SIGUSR1, SIG_ERR) == SIG_ERR && sigaction(99, &act, NULL) == -1);

	/* SIGCHLD and SIGPROF go by way of a handler of the library's, which does not show. */
	for (int i = 0; i < 2; i++) {
		int sig = i == 0 ? SIGCHLD : SIGPROF;
		CHECK(sysv_signal(sig, handle) == SIG_DFL && sigaction(sig, NULL, &old) == 0);
		CHECK(old.sa_handler == handle && old.sa_flags & (int)SA_RESETHAND && !(old.sa_flags & SA_SIGINFO));
		CHECK(raise(sig) == 0 && signal(sig, SIG_DFL) == SIG_DFL);
		CHECK(sigaction(sig, &act, NULL) == 0 && sigaction(sig, &old, &act) == 0 && act.sa_handler == handle && act.sa_flags & SA_NODEFER);
		CHECK(signal(sig, SIG_DFL) == handle);
	}
}

int main(int argc, char **argv)
{
	masks();
	CHECK(stack_size() >= LARGE);
	begin(&argc, &argv);
	handlers();
	others();
	CHECK(pthread_key_create(&key, at_end) == 0);
	run(with_small_stack);
	run(with_large_stack);
	run(fresh);
	long before = mappings();
	for (int i = 0; i < 200; i++)
		run(fresh);
	CHECK(mappings() - before < 100);
	return finish();
}
