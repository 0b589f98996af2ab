// The ring of package shm in C, between two processes, as a yardstick: the same
// cells, the same data, the same copies. Usage: ring latency|stream SIZE COUNT;
// prints nanoseconds per half round trip, or per message.
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 512, INLINE = 32, DATA = 512 << 10, CHUNK = 32 << 10, HOT = 64 << 10, TELL_BYTES = 4 << 10, TELL_CELLS = CELLS / 8 };

struct cell {
	_Atomic uint64_t word;
	char head[24];
	char body[INLINE];
};

struct ring {
	_Atomic uint64_t done __attribute__((aligned(4096)));
	struct cell cells[CELLS] __attribute__((aligned(4096)));
	char data[DATA];
};

struct end {
	struct ring *out, *in;
	uint64_t sent, done, taken, freed, taken_by[CELLS];
	size_t next;
	uint64_t at, told;
	size_t untold;
	int crowded;
};

static void wait_a_bit(struct end *e, int *spins) {
	if (!e->crowded && ++*spins < 128)
		__asm__ volatile("" ::: "memory");
	else
		sched_yield();
#if defined(__x86_64__)
	if (!e->crowded)
		__builtin_ia32_pause();
#endif
}

static void learn(struct end *e) {
	uint64_t done = atomic_load_explicit(&e->out->done, memory_order_acquire);
	if (done != e->done) {
		e->done = done;
		e->freed = e->taken_by[(done - 1) % CELLS];
	}
}

static int fit(struct end *e, size_t n, size_t *at, size_t *skip) {
	*at = e->next, *skip = 0;
	if (*at + n > DATA)
		*skip = DATA - *at, *at = 0;
	return e->taken + *skip + n - e->freed <= DATA;
}

static int try_send(struct end *e, const char *head, const char *p, size_t n) {
	if (e->sent - e->done == CELLS && (learn(e), e->sent - e->done == CELLS))
		return 0;
	struct cell *c = &e->out->cells[e->sent % CELLS];
	char *to = c->body;
	if (n > INLINE) {
		size_t need = (n + 63) & ~(size_t)63, at, skip;
		if (e->next + need > HOT)
			learn(e);
		if (e->taken == e->freed)
			e->next = 0;
		if (!fit(e, need, &at, &skip) && (learn(e), !fit(e, need, &at, &skip)))
			return 0;
		e->next = at + need, e->taken += skip + need;
		memcpy(c->body, &at, 8);
		to = e->out->data + at;
	}
	memcpy(to, p, n);
	memcpy(c->head, head, 24);
	e->taken_by[e->sent % CELLS] = e->taken;
	atomic_store(&c->word, (uint64_t)(uint32_t)(e->sent + 1) << 32 | n);
	e->sent++;
	return 1;
}

static void send_all(struct end *e, char op, const char *p, size_t n) {
	char head[24] = {op};
	memcpy(head + 8, &n, 8);
	int spins = 0;
	for (;;) {
		size_t k = n < CHUNK ? n : CHUNK;
		if (!try_send(e, head, p, k)) {
			wait_a_bit(e, &spins);
			continue;
		}
		p += k, n -= k;
		if (n == 0)
			return;
	}
}

static char recv_all(struct end *e, char *buf) {
	size_t got = 0;
	int spins = 0;
	for (;;) {
		struct cell *c = &e->in->cells[e->at % CELLS];
		uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
		if (word >> 32 != (uint32_t)(e->at + 1)) {
			wait_a_bit(e, &spins);
			continue;
		}
		size_t n = (uint32_t)word, at, total;
		char head[24], *from = c->body;
		if (n > INLINE) {
			memcpy(&at, c->body, 8);
			from = e->in->data + at;
			e->untold += n;
		}
		memcpy(head, c->head, 24);
		memcpy(&total, head + 8, 8);
		memcpy(buf + got, from, n);
		got += n;
		e->at++;
		if (e->untold >= TELL_BYTES || e->at - e->told >= TELL_CELLS) {
			e->told = e->at, e->untold = 0;
			atomic_store(&e->in->done, e->at);
		}
		if (got >= total)
			return head[0];
	}
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	int stream = !strcmp(argv[1], "stream");
	size_t size = atol(argv[2]);
	long count = atol(argv[3]);
	struct ring *rings = mmap(0, 2 * sizeof *rings, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *msg = malloc(size + 1), *buf = malloc(size + 1);
	memset(msg, 1, size + 1);
	memset(buf, 1, size + 1);
	static struct end e;
	cpu_set_t cpus;
	sched_getaffinity(0, sizeof cpus, &cpus);
	e.crowded = CPU_COUNT(&cpus) == 1;
	pid_t child = fork();
	if (child == 0) {
		e.out = &rings[1], e.in = &rings[0];
		for (;;) {
			char op = recv_all(&e, buf);
			if (op == 'x')
				_exit(0);
			if (op == 'e')
				send_all(&e, 'e', buf, size);
		}
	}
	e.out = &rings[0], e.in = &rings[1];
	double start = 0;
	for (long i = -count / 10 - 1; i < count; i++) { // the first tenth warms up
		if (i == 0)
			start = now();
		send_all(&e, stream && i != count - 1 ? 's' : 'e', msg, size);
		if (!stream || i == count - 1)
			recv_all(&e, buf);
	}
	printf("%.1f\n", (now() - start) / count / (stream ? 1 : 2));
	send_all(&e, 'x', msg, 0);
	waitpid(child, 0, 0);
	return 0;
}
