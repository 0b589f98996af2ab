/* One end of a TCP connection, as fast as C makes it: what the ends written in
 * Go are compared with. It speaks the language of part.go on standard input
 * and output, and makes one system call per message (more when it is partial).
 *
 *   end block|spin CONGESTION listen ADDRESS
 *   end block|spin CONGESTION dial ADDRESS PORT
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int flags = 0; /* MSG_DONTWAIT when polling */

static void fail(const char *what)
{
	fprintf(stderr, "C end: %s: %s\n", what, errno ? strerror(errno) : "ended early");
	exit(1);
}

static void receive(int fd, char *p, size_t n)
{
	while (n > 0) {
		ssize_t k = recv(fd, p, n, flags);
		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (k <= 0) {
			if (k == 0)
				errno = 0;
			fail("recv");
		}
		p += k;
		n -= (size_t)k;
	}
}

static void transmit(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t k = send(fd, p, n, flags | MSG_NOSIGNAL);
		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (k < 0)
			fail("send");
		p += k;
		n -= (size_t)k;
	}
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;
	return (x > y) - (x < y);
}

static void trips(int fd, int dialled, char *buf, size_t size, long count)
{
	if (!dialled) {
		for (long i = 0; i < count + count / 10; i++) {
			receive(fd, buf, size);
			transmit(fd, buf, size);
		}
		printf("ok 0 0\n");
		return;
	}
	long long *took = malloc(sizeof *took * (size_t)count);
	if (took == NULL)
		fail("malloc");
	for (long i = -(count / 10); i < count; i++) { /* the first warm up */
		char mark = (char)i;
		buf[0] = buf[size - 1] = mark;
		long long start = now();
		transmit(fd, buf, size);
		receive(fd, buf, size);
		long long t = now() - start;
		if (buf[0] != mark || buf[size - 1] != mark) {
			errno = EPROTO;
			fail("echo");
		}
		if (i >= 0)
			took[i] = t;
	}
	qsort(took, (size_t)count, sizeof *took, ascending);
	printf("ok %lld %lld\n", took[count / 2], took[count * 99 / 100]);
	free(took);
}

static void stream(int fd, int dialled, char *buf, size_t size, long count)
{
	char done = 1;
	if (!dialled) {
		for (long i = 0; i < count; i++)
			receive(fd, buf, size);
		transmit(fd, &done, 1);
		printf("ok 0 0\n");
		return;
	}
	long long start = now();
	for (long i = 0; i < count; i++)
		transmit(fd, buf, size);
	receive(fd, &done, 1);
	printf("ok %lld 0\n", now() - start);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	int one = 1, dialled = strcmp(argv[3], "dial") == 0;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || inet_pton(AF_INET, argv[4], &a.sin_addr) != 1)
		fail("socket");
	if (dialled) {
		a.sin_port = htons((unsigned short)atoi(argc > 5 ? argv[5] : "0"));
		if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
			fail("connect");
	} else {
		int ln = fd;
		if (bind(ln, (struct sockaddr *)&a, sizeof a) < 0 || listen(ln, 1) < 0 || getsockname(ln, (struct sockaddr *)&a, &len) < 0)
			fail("listen");
		printf("listening %d\n", ntohs(a.sin_port));
		fflush(stdout);
		fd = accept(ln, NULL, NULL);
		if (fd < 0)
			fail("accept");
		close(ln);
	}
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
		fail("TCP_NODELAY");
	if (strcmp(argv[1], "spin") == 0)
		flags = MSG_DONTWAIT;
	/* Not every host allows it: what is in use is told. */
	char congestion[32] = "";
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, argv[2], (socklen_t)strlen(argv[2]));
	len = sizeof congestion - 1;
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, &len) < 0)
		fail("TCP_CONGESTION");
	printf("ready %s\n", congestion);
	fflush(stdout);

	char what[16];
	size_t size;
	long count;
	while (scanf("%15s %zu %ld", what, &size, &count) == 3) {
		char *buf = malloc(size);
		if (buf == NULL)
			fail("malloc");
		memset(buf, 'x', size);
		if (strcmp(what, "trips") == 0)
			trips(fd, dialled, buf, size, count);
		else
			stream(fd, dialled, buf, size, count);
		free(buf);
		fflush(stdout);
	}
	return 0;
}
