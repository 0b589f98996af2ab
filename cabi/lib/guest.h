/* What makes the library a guest in the program's process: its signals, threads, children and exit
   status stay the program's. guest.c says how. */

#include <signal.h>
#include <stdint.h>

/* isthmus_thread is a number of the calling thread; isthmus_in_program tells whether it is the program's. */
uintptr_t isthmus_thread(void);
int isthmus_in_program(void);

/* isthmus_joined notes that this process is a rank of a world; isthmus_left that it left. */
void isthmus_joined(int rank);
void isthmus_left(void);

typedef int isthmus_sigaction_function(int, const struct sigaction *, struct sigaction *);
