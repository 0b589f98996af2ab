/* What of PMIx's client library the core calls. It is not linked with it: pmix.c loads it where a launcher serves PMIx. The
   structures are those of its releases 2 to 5. */

#include <stddef.h>
#include <stdint.h>

struct isthmus_pmix_process {
	char job[256];
	uint32_t rank;
};

struct isthmus_pmix_value {
	uint16_t type;
	union {
		_Bool flag;
		int integer;
		char *string;
		struct {
			char *name, *value;
			char separator;
		} largest;
	} data;
};

struct isthmus_pmix_info {
	char key[512];
	uint32_t flags;
	struct isthmus_pmix_value value;
};

/* The functions return NULL, or what is wrong. A process calls them one after another, but for abort. seconds bounds a wait. */
const char *isthmus_pmix_open(void);
const char *isthmus_pmix_put(const char *name, const char *text);
const char *isthmus_pmix_fence(int seconds);
const char *isthmus_pmix_get(const char *name, uint32_t rank, int seconds, char *text, size_t room);
const char *isthmus_pmix_abort(int status);
const char *isthmus_pmix_close(void);
