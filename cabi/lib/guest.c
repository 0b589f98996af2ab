//go:build cabi

/* Go and the program share threads and signals. A handler that interrupts Go code would run on a
   goroutine's stack, which has a few KiB, and destroy what lies below. Therefore:

   - handlers run on alternate stacks: isthmus_sigaction adds SA_ONSTACK (the front-ends' signals.c
     interposes sigaction and its relatives);
   - threads of the program have one of 256 KiB before they first enter Go;
   - Go's threads, whose own have 32 KiB, run no handlers: they start with asynchronous signals blocked,
     and hand on those few that Go's runtime unblocks. */

#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* In Go: the first does nothing. */
extern int32_t isthmus_Pcontrol(int32_t level);
extern void isthmus_leave(void);

/* initial-exec: a signal handler reads them, and may not allocate. */
#define PER_THREAD __thread __attribute__((tls_model("initial-exec")))

PER_THREAD int isthmus_entered; /* this thread may enter Go */
static PER_THREAD int is_go_thread;

/* 256 KiB are what a handler may use, with a page below that ends the program beyond. */
enum { STACK = 256 << 10 };

static size_t page;
static pthread_key_t stack_key;
static PER_THREAD int is_late;

/* free_stack is called twice at a thread's end: the destructors of Go and of the program come after the
   first call, and may enter Go. */
static void free_stack(void *memory)
{
	stack_t now;
	if (!is_late) {
		is_late = 1;
		pthread_setspecific(stack_key, memory);
		return;
	}
	if (sigaltstack(NULL, &now) == 0 && now.ss_sp == (char *)memory + page) {
		stack_t none = {.ss_flags = SS_DISABLE};
		sigaltstack(&none, NULL);
	}
	munmap(memory, page + STACK);
}

/* give_stack leaves a thread's own stack alone if it is large enough, or in use. */
static void give_stack(void)
{
	stack_t now, given = {.ss_size = STACK};
	char *memory;
	if (sigaltstack(NULL, &now) != 0 || (now.ss_flags & SS_ONSTACK) || (!(now.ss_flags & SS_DISABLE) && now.ss_size >= STACK))
		return;
	memory = mmap(NULL, page + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return;
	given.ss_sp = memory + page;
	if (mprotect(memory, page, PROT_NONE) != 0 || pthread_setspecific(stack_key, memory) != 0 || sigaltstack(&given, NULL) != 0) {
		pthread_setspecific(stack_key, NULL);
		munmap(memory, page + STACK);
	}
}

static int is_forked; /* Go's threads are not in this process */

static void after_fork(void)
{
	is_forked = 1;
	isthmus_entered = 0;
}

/* isthmus_enter_first prepares a thread for Go. In a child made by fork, a call would wait for
   threads that are not there. */
void isthmus_enter_first(const char *name)
{
	sigset_t mask;
	if (is_forked) {
		fflush(NULL);
		dprintf(STDERR_FILENO, "isthmus: the program calls %s in a process made by fork, which has no MPI\n", name);
		_exit(1);
	}
	give_stack();
	/* Go unblocks SIGCHLD and others on each thread that enters it, once and for good. */
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	isthmus_Pcontrol(0);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	isthmus_entered = 1;
}

uintptr_t isthmus_thread(void)
{
	return (uintptr_t)pthread_self();
}

int isthmus_in_program(void)
{
	return isthmus_entered;
}

/* block_asynchronous blocks what is not raised by the thread itself, but for SIGURG, with which Go
   interrupts its threads. */
static void block_asynchronous(sigset_t *before)
{
	static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGURG};
	sigset_t set;
	sigfillset(&set);
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		sigdelset(&set, kept[i]);
	pthread_sigmask(SIG_BLOCK, &set, before);
}

struct start {
	void *(*function)(void *);
	void *argument;
};

static void *go_thread(void *argument)
{
	struct start start = *(struct start *)argument;
	free(argument);
	is_go_thread = 1;
	return start.function(start.argument);
}

/* The linker has Go's runtime call this for pthread_create (main.go). Go's first thread inherits the
   mask, and the runtime gives it to all others. */
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
	int result;
	sigset_t before;
	struct start *start = malloc(sizeof *start);
	if (start == NULL)
		return ENOMEM;
	*start = (struct start){function, argument};
	block_asynchronous(&before);
	result = __real_pthread_create(thread, attributes, go_thread, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result != 0)
		free(start);
	return result;
}

/* Go's threads have some signals unblocked, whatever mask they inherit (runtime, sigtab_linux_generic.go):
   deliver stands before the program's handlers of these. */
static struct {
	void (*_Atomic handler)(int, siginfo_t *, void *);
	_Atomic int flags;
} own[_NSIG];

static int is_unblocked(int sig)
{
	return sig == SIGCHLD || sig == SIGPROF || sig == SIGSTKFLT || sig == 34;
}

/* deliver sends what a thread of Go's got to the process again, and has that thread block it from
   then on. The kernel's SA_RESETHAND would reset the handler for nothing. */
static void deliver(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	if (is_go_thread) {
		sigaddset(&((ucontext_t *)context)->uc_sigmask, sig);
		syscall(SYS_rt_sigqueueinfo, getpid(), sig, info);
		errno = saved;
		return;
	}
	if (own[sig].flags & SA_RESETHAND) {
		struct sigaction none = {.sa_handler = SIG_DFL};
		sigaction(sig, &none, NULL);
	}
	errno = saved;
	own[sig].handler(sig, info, context);
}

/* isthmus_sigaction is sigaction by way of next, with SA_ONSTACK. It can be called in handlers. */
int isthmus_sigaction(isthmus_sigaction_function *next, int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction changed, before;
	void (*handler)(int, siginfo_t *, void *);
	int flags, result;
	if (sig < 1 || sig >= _NSIG)
		return next(sig, act, old);
	handler = own[sig].handler;
	flags = own[sig].flags;
	if (act != NULL && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN) {
		changed = *act;
		changed.sa_flags |= SA_ONSTACK;
		if (is_unblocked(sig) && act->sa_sigaction != deliver) {
			own[sig].flags = act->sa_flags;
			own[sig].handler = act->sa_sigaction;
			changed.sa_sigaction = deliver;
			changed.sa_flags = (changed.sa_flags | SA_SIGINFO) & ~SA_RESETHAND;
		}
		act = &changed;
	}
	result = next(sig, act, &before);
	if (result == 0 && before.sa_sigaction == deliver) {
		before.sa_sigaction = handler;
		before.sa_flags = (before.sa_flags & ~SA_SIGINFO) | (flags & (SA_SIGINFO | SA_RESETHAND));
	}
	if (result == 0 && old != NULL)
		*old = before;
	return result;
}

/* adopt_handlers treats handlers that were installed before the library was loaded, or past it. */
static void adopt_handlers(void)
{
	for (int sig = 1; sig < _NSIG; sig++) {
		struct sigaction now;
		if (isthmus_sigaction(sigaction, sig, NULL, &now) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)
			continue;
		if (!(now.sa_flags & SA_ONSTACK) || is_unblocked(sig))
			isthmus_sigaction(sigaction, sig, &now, NULL);
	}
}

/* The process that is a rank; 0 before and after. A child made by fork is none. */
static pid_t member;
static int member_rank, is_idle;
static _Atomic int is_initialized, is_finalized;

void isthmus_changed(int rank, struct isthmus_life now)
{
	if (now.member && member == 0)
		adopt_handlers();
	member_rank = rank;
	member = now.member ? getpid() : 0;
	is_idle = now.idle;
	is_initialized = now.initialized;
	is_finalized = now.finalized;
}

int isthmus_is_initialized(void)
{
	return is_initialized;
}

int isthmus_is_finalized(void)
{
	return is_finalized;
}

static void __attribute__((constructor)) prepare(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	pthread_key_create(&stack_key, free_stack);
	pthread_atfork(NULL, NULL, after_fork);
}

/* A destructor comes after all exit handlers, of which one may finalize. To finalize here would wait for
   ranks that may be waiting for this one; but where all sessions are closed, none is. */
static void __attribute__((destructor)) at_exit(void)
{
	if (member == 0 || member != getpid())
		return;
	if (is_idle) {
		if (!isthmus_entered)
			isthmus_enter_first("exit");
		isthmus_leave();
		return;
	}
	fflush(NULL);
	dprintf(STDERR_FILENO, "isthmus: rank %d: the program ended without %s\n", member_rank,
		is_initialized && !is_finalized ? "MPI_Finalize" : "MPI_Session_finalize");
}
