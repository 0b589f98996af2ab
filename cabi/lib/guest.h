/* What makes the library a guest in the program's process: its signals, threads, children and exit
   status stay the program's. guest.c says how. */

#include <signal.h>
#include <stdint.h>

/* isthmus_thread is a number of the calling thread; isthmus_in_program tells whether it is the program's. */
uintptr_t isthmus_thread(void);
int isthmus_in_program(void);

/* isthmus_changed notes that MPI's life in this process has changed (Life, package core). */
struct isthmus_life {
	_Bool member, idle, initialized, finalized;
};
void isthmus_changed(int rank, struct isthmus_life now);

typedef int isthmus_sigaction_function(int, const struct sigaction *, struct sigaction *);
