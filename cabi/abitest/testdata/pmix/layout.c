/* The structures that the core shares with PMIx's client library are those of the header that is installed. */

#include "../../../lib/pmix.h"

#include <pmix_common.h>

#define SAME(what, ours, theirs) _Static_assert((ours) == (theirs), what)

SAME("process", sizeof(struct isthmus_pmix_process), sizeof(pmix_proc_t));
SAME("rank", offsetof(struct isthmus_pmix_process, rank), offsetof(pmix_proc_t, rank));
SAME("value", sizeof(struct isthmus_pmix_value), sizeof(pmix_value_t));
SAME("data", offsetof(struct isthmus_pmix_value, data), offsetof(pmix_value_t, data));
SAME("info", sizeof(struct isthmus_pmix_info), sizeof(pmix_info_t));
SAME("value of info", offsetof(struct isthmus_pmix_info, value), offsetof(pmix_info_t, value));
SAME("types", PMIX_BOOL * 100 + PMIX_STRING * 10 + PMIX_INT, 136);
SAME("scope", PMIX_GLOBAL, 3);
