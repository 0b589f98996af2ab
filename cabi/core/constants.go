package core

// Handles and other constants of the standard's C ABI (MPI-5.0, appendix A.1).
const (
	inPlace = uintptr(1) // MPI_IN_PLACE, as an address

	commNull  = uintptr(0x100)
	commWorld = uintptr(0x101)
	commSelf  = uintptr(0x102)

	groupNull  = uintptr(0x108)
	groupEmpty = uintptr(0x109)

	infoNull = uintptr(0x130)
	infoEnv  = uintptr(0x131)

	messageNull   = uintptr(0x128)
	messageNoProc = uintptr(0x129)

	sessionNull = uintptr(0x120)

	requestNull  = uintptr(0x180)
	datatypeNull = uintptr(0x200)
	opNull       = uintptr(0x20)

	errhandlerNull = uintptr(0x140)
	errorsAreFatal = uintptr(0x141)
	errorsAbort    = uintptr(0x142)
	errorsReturn   = uintptr(0x143)

	undefined      = int32(-32766)
	threadMultiple = int32(4096)

	commTypeShared         = int32(221)
	commTypeHWUnguided     = int32(222)
	commTypeHWGuided       = int32(223)
	commTypeResourceGuided = int32(224)

	maxProcessorName = 256
	maxErrorString   = 512
	maxLibraryText   = 8192
	maxInfoKey       = 255 // MPICH's, with the zero; the standard's ABI has room for one more
	maxInfoValue     = 1024
	maxObjectName    = 128
	maxStringTag     = 1024
	maxPsetName      = 1024
	maxPortName      = 256 // MPICH's; the standard's ABI has room for 1024
)

// Comparisons of groups and communicators.
const (
	identical = int32(201) + iota
	congruent
	similar
	unequal
)
