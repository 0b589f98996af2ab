/* Statuses, arrays and callbacks of an ABI that is not the standard's, from and to the core's. The front-end has the
   translations of values above. */

static inline uintptr_t to_status(const MPI_Status *status, MPI_ABI_Status *abi)
{
	if (status == IGNORE || !status)
		return 0;
	status_to(status, abi);
	return (uintptr_t)abi;
}

static inline void from_status(MPI_Status *status, const MPI_ABI_Status *abi)
{
	if (status != IGNORE && status)
		status_from(status, abi);
}

/* from_text copies a text to a program that has room for so many characters, and stores its length unless that is
   not asked for. */
static void __attribute__((unused)) from_text(char *text, const char *abi, int room, int *length)
{
	int n = 0;
	while (n < room - 1 && abi[n])
		n++;
	memcpy(text, abi, (size_t)n);
	text[n] = 0;
	if (length)
		*length = n;
}

/* array allocates n elements, and ends the program where there is no memory: the functions that
   call it have no way to say so. */
static void *array(int n, size_t size)
{
	void *p = calloc(n > 0 ? (size_t)n : 1, size);
	if (!p) {
		fprintf(stderr, "isthmus: no memory for %d handles\n", n);
		abort();
	}
	return p;
}

static inline MPI_ABI_Status *to_statuses(const MPI_Status *statuses, int n)
{
	if (statuses == IGNORE || !statuses)
		return NULL;
	MPI_ABI_Status *abi = array(n, sizeof *abi);
	for (int i = 0; i < n; i++)
		status_to(&statuses[i], &abi[i]);
	return abi;
}

static inline void from_statuses(MPI_Status *statuses, MPI_ABI_Status *abi, int n)
{
	if (abi)
		for (int i = 0; i < n; i++)
			status_from(&statuses[i], &abi[i]);
	free(abi);
}

static inline uintptr_t *to_requests(const MPI_Request *requests, int n)
{
	uintptr_t *abi = array(n, sizeof *abi);
	for (int i = 0; i < n; i++)
		abi[i] = to_request(requests[i]);
	return abi;
}

static inline void from_requests(MPI_Request *requests, uintptr_t *abi, int n)
{
	for (int i = 0; i < n; i++)
		requests[i] = from_request(abi[i]);
	free(abi);
}

/* The value of an attribute of the standard's is the address of an int, and for some an int that this ABI has another value
   for. */
static inline void from_attribute(int keyval, int there, void *attribute)
{
	static int io, host, last_used_code;
	int **value = attribute;
	if (!there)
		return;
	switch (to_keyval(keyval)) {
	case 502: /* MPI_IO */
		io = from_rank(**value);
		*value = &io;
		break;
	case 503: /* MPI_HOST */
		host = from_rank(**value);
		*value = &host;
		break;
	case 506: /* MPI_LASTUSEDCODE */
		last_used_code = from_error(**value);
		*value = &last_used_code;
	}
}

static inline int32_t *to_ranks(const int *ranks, int n)
{
	int32_t *abi = array(n, sizeof *abi);
	for (int i = 0; i < n; i++)
		abi[i] = to_rank(ranks[i]);
	return abi;
}

static inline void from_ranks(int *ranks, int32_t *abi, int n)
{
	for (int i = 0; i < n; i++)
		ranks[i] = from_rank(abi[i]);
	free(abi);
}

/* peers is the number of processes that a collective call of comm sends to. */
static inline int peers(MPI_Comm comm)
{
	int32_t inter = 0, n = 0;
	isthmus_Comm_test_inter(to_comm(comm), (uintptr_t)&inter);
	if (inter)
		isthmus_Comm_remote_size(to_comm(comm), (uintptr_t)&n);
	else
		isthmus_Comm_size(to_comm(comm), (uintptr_t)&n);
	return n;
}

/* neighbours is how many processes a neighbourhood collective of comm receives from, or sends to. */
static inline int neighbours(MPI_Comm comm, int sends)
{
	const uintptr_t c = to_comm(comm);
	int32_t kind = 0, rank = 0, in = 0, out = 0, weighted;
	isthmus_Topo_test(c, (uintptr_t)&kind);
	switch (kind) {
	case 211: /* MPI_CART */
		isthmus_Cartdim_get(c, (uintptr_t)&in);
		return 2 * in;
	case 212: /* MPI_GRAPH */
		isthmus_Comm_rank(c, (uintptr_t)&rank);
		isthmus_Graph_neighbors_count(c, rank, (uintptr_t)&in);
		return in;
	case 213: /* MPI_DIST_GRAPH */
		isthmus_Dist_graph_neighbors_count(c, (uintptr_t)&in, (uintptr_t)&out, (uintptr_t)&weighted);
		return sends ? out : in;
	}
	return 0;
}

/* The types of a collective call; those of the senders may be anything where it works in place. */
static inline uintptr_t *to_datatypes(const MPI_Datatype *types, int n)
{
	if (!types)
		return NULL;
	uintptr_t *abi = array(n, sizeof *abi);
	for (int i = 0; i < n; i++)
		abi[i] = to_datatype(types[i]);
	return abi;
}

static inline void from_datatypes(MPI_Datatype *types, uintptr_t *abi, int n)
{
	for (int i = 0; i < n; i++)
		if (abi[i]) /* the core has written it */
			types[i] = from_datatype(abi[i]);
	free(abi);
}

/* The distributions of an array's dimensions, and their arguments. */
static inline int32_t *to_distributions(const int *distributions, int n)
{
	int32_t *abi = array(n, sizeof *abi);
	for (int i = 0; i < n; i++)
		abi[i] = to_distribution(distributions[i]);
	return abi;
}

static inline int32_t *to_dargs(const int *arguments, int n)
{
	int32_t *abi = array(n, sizeof *abi);
	for (int i = 0; i < n; i++)
		abi[i] = to_darg(arguments[i]);
	return abi;
}

/* from_contents translates the integers that a type of arrays was made of. The last one is the order;
   where the sizes are no large counts, they lie before the distributions. */
static inline void from_contents(MPI_Datatype type, int *integers)
{
	int64_t n = 0, addresses, large = 0, types;
	int32_t combiner = 0;
	isthmus_Type_get_envelope_c(to_datatype(type), (uintptr_t)&n, (uintptr_t)&addresses, (uintptr_t)&large, (uintptr_t)&types, (uintptr_t)&combiner);
	if (combiner != 111 && combiner != 112) /* MPI_COMBINER_SUBARRAY, MPI_COMBINER_DARRAY */
		return;
	integers[n - 1] = from_order(integers[n - 1]);
	if (combiner == 111)
		return;
	const int dims = integers[2];
	int *distributions = integers + 3 + (large ? 0 : dims), *arguments = distributions + dims;
	for (int i = 0; i < dims; i++) {
		distributions[i] = from_distribution(distributions[i]);
		arguments[i] = from_darg(arguments[i]);
	}
}

static void __attribute__((unused)) call_user_function(uintptr_t fn, uintptr_t in, uintptr_t inout, int64_t n, uintptr_t datatype)
{
	int len = (int)n;
	MPI_Datatype type = from_datatype(datatype);
	((MPI_User_function *)fn)((void *)in, (void *)inout, &len, &type);
}

static void __attribute__((unused)) call_user_function_c(uintptr_t fn, uintptr_t in, uintptr_t inout, int64_t n, uintptr_t datatype)
{
	MPI_Count len = n;
	MPI_Datatype type = from_datatype(datatype);
	((MPI_User_function_c *)fn)((void *)in, (void *)inout, &len, &type);
}

static int32_t __attribute__((unused)) call_grequest_query_function(uintptr_t fn, uintptr_t extra, uintptr_t abi)
{
	MPI_ABI_Status ignored = {-1, -2, 0, 0, 0, 0, {0, 0}}; /* of any source, with any tag */
	MPI_ABI_Status *core = abi ? (MPI_ABI_Status *)abi : &ignored;
	MPI_Status status;
	status_from(&status, core);
	int error = ((MPI_Grequest_query_function *)fn)((void *)extra, &status);
	status_to(&status, core);
	return to_error(error);
}

static int32_t __attribute__((unused)) call_grequest_free_function(uintptr_t fn, uintptr_t extra, uintptr_t unused)
{
	return to_error(((MPI_Grequest_free_function *)fn)((void *)extra));
}

static int32_t __attribute__((unused)) call_grequest_cancel_function(uintptr_t fn, uintptr_t extra, uintptr_t complete)
{
	return to_error(((MPI_Grequest_cancel_function *)fn)((void *)extra, (int)complete));
}

static void __attribute__((unused)) call_comm_errhandler_function(uintptr_t fn, uintptr_t handle, int32_t code)
{
	MPI_Comm comm = from_comm(handle);
	int error = from_error(code);
	((MPI_Comm_errhandler_function *)fn)(&comm, &error);
}

static void __attribute__((unused)) call_session_errhandler_function(uintptr_t fn, uintptr_t handle, int32_t code)
{
	MPI_Session session = from_session(handle);
	int error = from_error(code);
	((MPI_Session_errhandler_function *)fn)(&session, &error);
}

static int32_t __attribute__((unused)) call_type_copy_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t in, uintptr_t *out, int *keep)
{
	void *value = NULL;
	int error = ((MPI_Type_copy_attr_function *)fn)(from_datatype(object), keyval, (void *)extra, (void *)in, &value, keep);
	*out = (uintptr_t)value;
	return to_error(error);
}

static int32_t __attribute__((unused)) call_type_delete_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra)
{
	int error = ((MPI_Type_delete_attr_function *)fn)(from_datatype(object), keyval, (void *)value, (void *)extra);
	return to_error(error);
}

static int32_t __attribute__((unused)) call_comm_copy_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t in, uintptr_t *out, int *keep)
{
	void *value = NULL;
	int error = ((MPI_Comm_copy_attr_function *)fn)(from_comm(object), keyval, (void *)extra, (void *)in, &value, keep);
	*out = (uintptr_t)value;
	return to_error(error);
}

static int32_t __attribute__((unused)) call_comm_delete_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra)
{
	int error = ((MPI_Comm_delete_attr_function *)fn)(from_comm(object), keyval, (void *)value, (void *)extra);
	return to_error(error);
}

static void __attribute__((unused)) call_win_errhandler_function(uintptr_t fn, uintptr_t handle, int32_t code)
{
	MPI_Win win = from_win(handle);
	int error = from_error(code);
	((MPI_Win_errhandler_function *)fn)(&win, &error);
}

static int32_t __attribute__((unused)) call_win_copy_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t extra, uintptr_t in, uintptr_t *out, int *keep)
{
	void *value = NULL;
	int error = ((MPI_Win_copy_attr_function *)fn)(from_win(object), keyval, (void *)extra, (void *)in, &value, keep);
	*out = (uintptr_t)value;
	return to_error(error);
}

static int32_t __attribute__((unused)) call_win_delete_attr_function(uintptr_t fn, uintptr_t object, int32_t keyval, uintptr_t value, uintptr_t extra)
{
	int error = ((MPI_Win_delete_attr_function *)fn)(from_win(object), keyval, (void *)value, (void *)extra);
	return to_error(error);
}

/* The functions of MPI_Keyval_create have the same types under other names. */
#define call_copy_function call_comm_copy_attr_function
#define call_delete_function call_comm_delete_attr_function
