package core

// commNames are the names that the standard gives communicators (MPI-5.0, section 7.8).
var commNames = map[uintptr]string{commNull: "MPI_COMM_NULL", commWorld: "MPI_COMM_WORLD", commSelf: "MPI_COMM_SELF"}

// nameOf returns the name of c, empty unless the standard or the program has given it one.
func (c *communicator) nameOf() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	return ""
}

// CommSetName names a communicator, also in the text of errors.
func CommSetName(comm, name uintptr) int32 {
	return onComm("MPI_Comm_set_name", comm, func(c *communicator) error {
		text := textAt(name)
		c.name.Store(&text)
		c.SetName(text)
		return nil
	})
}

// CommGetName returns the name of a communicator; MPI_COMM_NULL has one, too.
func CommGetName(comm, name, length uintptr) int32 {
	if comm == commNull {
		storeText(name, commNames[commNull], maxObjectName, length)
		return success
	}
	return onComm("MPI_Comm_get_name", comm, func(c *communicator) error {
		storeText(name, c.nameOf(), maxObjectName, length)
		return nil
	})
}
