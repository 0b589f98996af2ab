/* The functions that install signal handlers, in place of the C library's: handlers get SA_ONSTACK, since
   one that interrupts Go code may not use the stack that it finds. They do what glibc's do otherwise.
   The loader finds them first in programs that are linked with the library. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>

typedef void handler_function(int);
typedef int sigaction_function(int, const struct sigaction *, struct sigaction *);

int isthmus_sigaction(sigaction_function *next, int sig, const struct sigaction *act, struct sigaction *old);

/* next finds the definition that this library's hides. */
static void *next(void **found, const char *name)
{
	if (*found == NULL)
		*found = dlsym(RTLD_NEXT, name);
	return *found;
}

static void *found_sigaction, *found_siginterrupt;

/* Handlers may call sigaction, but not dlsym. */
static void __attribute__((constructor)) find(void)
{
	next(&found_sigaction, "sigaction");
}

int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	sigaction_function *original;
	*(void **)&original = next(&found_sigaction, "sigaction");
	return isthmus_sigaction(original, sig, act, old);
}

int __sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return sigaction(sig, act, old);
}

/* install is what the older functions have in common: they return the handler before. */
static handler_function *install(int sig, handler_function *handler, int flags, int masked)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;
	if (handler == SIG_ERR || sig < 1 || sig >= _NSIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&act.sa_mask);
	if (masked)
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) == 0 ? old.sa_handler : SIG_ERR;
}

static char interrupts[_NSIG]; /* of signals that siginterrupt was called for */

int siginterrupt(int sig, int flag)
{
	int (*original)(int, int);
	*(void **)&original = next(&found_siginterrupt, "siginterrupt");
	int result = original(sig, flag);
	if (result == 0)
		interrupts[sig] = flag != 0;
	return result;
}

handler_function *signal(int sig, handler_function *handler)
{
	return install(sig, handler, sig > 0 && sig < _NSIG && interrupts[sig] ? 0 : SA_RESTART, 1);
}

handler_function *bsd_signal(int sig, handler_function *handler)
{
	return signal(sig, handler);
}

handler_function *ssignal(int sig, handler_function *handler)
{
	return signal(sig, handler);
}

/* This is signal in programs compiled with -std=c99 and no more. */
handler_function *__sysv_signal(int sig, handler_function *handler)
{
	return install(sig, handler, (int)SA_RESETHAND | SA_NODEFER, 0);
}

handler_function *sysv_signal(int sig, handler_function *handler)
{
	return __sysv_signal(sig, handler);
}

handler_function *sigset(int sig, handler_function *handler)
{
	sigset_t set, before;
	struct sigaction now;
	handler_function *old;
	sigemptyset(&set);
	if (handler == SIG_ERR || sigaddset(&set, sig) != 0) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (handler == SIG_HOLD) {
		if (sigprocmask(SIG_BLOCK, &set, &before) != 0 || sigaction(sig, NULL, &now) != 0)
			return SIG_ERR;
		old = now.sa_handler;
	} else {
		old = install(sig, handler, 0, 0);
		if (old == SIG_ERR || sigprocmask(SIG_UNBLOCK, &set, &before) != 0)
			return SIG_ERR;
	}
	return sigismember(&before, sig) ? SIG_HOLD : old;
}
