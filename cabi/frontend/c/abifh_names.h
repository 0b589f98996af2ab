/* Routines of the standard ABI whose arguments are not those of C. Lengths do not count the end that C's texts have. */

ROUTINE(info_create_env, INFO_CREATE_ENV, (MPI_Fint *info, MPI_Fint *ierr))
{
	uintptr_t made = 0;
	isthmus_enter("MPI_Info_create_env");
	const int outcome = from_error(isthmus_Info_create_env(0, 0, (uintptr_t)&made));
	if (made)
		*info = from_info(made);
	set_error(ierr, outcome);
}

ROUTINE(info_get_string, INFO_GET_STRING, (const MPI_Fint *info, const char *f_key, int *buflen, char *value, int *flag, MPI_Fint *ierr, int key_length, int value_length))
{
	char *key = text_to(f_key, key_length), *text = array(*buflen + 1, 1);
	int length = *buflen > 0 ? *buflen + 1 : 0;
	isthmus_enter("MPI_Info_get_string");
	const int outcome = from_error(isthmus_Info_get_string(to_info(*info), (uintptr_t)key, (uintptr_t)&length, (uintptr_t)text, (uintptr_t)flag));
	if (!outcome && *flag) {
		if (*buflen > 0)
			text_from(value, value_length, text);
		*buflen = length - 1;
	}
	free(key), free(text);
	set_error(ierr, outcome);
}

ROUTINE(session_get_nth_pset, SESSION_GET_NTH_PSET, (const MPI_Fint *session, const MPI_Fint *info, const int *n, int *pset_len, char *pset_name, MPI_Fint *ierr, int name_length))
{
	char *text = array(*pset_len + 1, 1);
	int length = *pset_len > 0 ? *pset_len + 1 : 0;
	isthmus_enter("MPI_Session_get_nth_pset");
	const int outcome = from_error(isthmus_Session_get_nth_pset(to_session(*session), to_info(*info), *n, (uintptr_t)&length, (uintptr_t)text));
	if (!outcome) {
		if (*pset_len > 0)
			text_from(pset_name, name_length, text);
		*pset_len = length - 1;
	}
	free(text);
	set_error(ierr, outcome);
}
