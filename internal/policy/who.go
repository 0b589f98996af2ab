package policy

// Who is on whose behalf one end of a link works: a user, and the project of
// the user's grant. Either may be empty: not known, or without a grant.
type Who struct{ User, Project string }
