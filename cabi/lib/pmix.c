//go:build cabi

#include "pmix.h"

#include <dlfcn.h>
#include <string.h>

/* Numbers of PMIx: pmix_common.h. */
enum {
	SUCCESS = 0,
	GLOBAL = 3, /* a scope: all processes of the job */
	BOOL = 1,   /* types */
	STRING = 3,
	INT = 6,
};

typedef struct isthmus_pmix_process process;
typedef struct isthmus_pmix_value value;
typedef struct isthmus_pmix_info info;

static struct {
	int (*init)(process *, info *, size_t);
	int (*put)(uint8_t, const char *, value *);
	int (*commit)(void);
	int (*fence)(const process *, size_t, const info *, size_t);
	int (*get)(const process *, const char *, const info *, size_t, value **);
	int (*abort)(int, const char *, process *, size_t);
	int (*finalize)(const info *, size_t);
	const char *(*error_string)(int);
} pmix;

static const struct {
	const char *name;
	void *function;
} functions[] = {
	{"PMIx_Init", &pmix.init},         {"PMIx_Put", &pmix.put},     {"PMIx_Commit", &pmix.commit},
	{"PMIx_Fence", &pmix.fence},       {"PMIx_Get", &pmix.get},     {"PMIx_Abort", &pmix.abort},
	{"PMIx_Finalize", &pmix.finalize}, {"PMIx_Error_string", &pmix.error_string},
};

static process self;

static const char *result(int status)
{
	return status == SUCCESS ? NULL : pmix.error_string(status);
}

/* Its components, which it loads itself, look for its names: hence RTLD_GLOBAL. It stays loaded, as its threads may. */
const char *isthmus_pmix_open(void)
{
	void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL)
		return dlerror();
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *function = dlsym(library, functions[i].name);
		if (function == NULL)
			return dlerror();
		memcpy(functions[i].function, &function, sizeof function);
	}
	return result(pmix.init(&self, NULL, 0));
}

const char *isthmus_pmix_put(const char *name, const char *text)
{
	value v = {.type = STRING, .data.string = (char *)text}; /* which it copies */
	return result(pmix.put(GLOBAL, name, &v));
}

const char *isthmus_pmix_fence(int seconds)
{
	info how[] = {
		{.key = "pmix.collect", .value = {.type = BOOL, .data.flag = 1}},
		{.key = "pmix.timeout", .value = {.type = INT, .data.integer = seconds}},
	};
	int status = pmix.commit();
	if (status == SUCCESS)
		status = pmix.fence(NULL, 0, how, 2);
	return result(status);
}

/* The library's copy of the text stays: a process gets few, and the function that frees one is no symbol in old releases. */
const char *isthmus_pmix_get(const char *name, uint32_t rank, int seconds, char *text, size_t room)
{
	info how = {.key = "pmix.timeout", .value = {.type = INT, .data.integer = seconds}};
	process of = self;
	value *got = NULL;
	int status;
	of.rank = rank;
	status = pmix.get(&of, name, &how, 1, &got);
	if (status != SUCCESS)
		return result(status);
	if (got == NULL || got->type != STRING || got->data.string == NULL || strlen(got->data.string) >= room)
		return "what it has is no text, or too long";
	strcpy(text, got->data.string);
	return NULL;
}

const char *isthmus_pmix_abort(int status)
{
	return result(pmix.abort(status, "MPI_Abort", NULL, 0));
}

const char *isthmus_pmix_close(void)
{
	return result(pmix.finalize(NULL, 0));
}
