/* Runs a command on one core, as launchers do that bind ranks. */

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	cpu_set_t allowed, one;
	if (argc < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return 1;
	for (int core = 0; core < CPU_SETSIZE; core++) {
		if (CPU_ISSET(core, &allowed)) {
			CPU_ZERO(&one);
			CPU_SET(core, &one);
			break;
		}
	}
	if (sched_setaffinity(0, sizeof one, &one) == 0)
		execv(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
