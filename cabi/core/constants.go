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

// Operations.
const (
	opSum    = uintptr(0x21)
	opMin    = uintptr(0x22)
	opMax    = uintptr(0x23)
	opProd   = uintptr(0x24)
	opBAnd   = uintptr(0x28)
	opBOr    = uintptr(0x29)
	opBXor   = uintptr(0x2a)
	opLAnd   = uintptr(0x30)
	opLOr    = uintptr(0x31)
	opLXor   = uintptr(0x32)
	opMinLoc = uintptr(0x38)
	opMaxLoc = uintptr(0x39)
)

// Orders and distributions of arrays, and classes of types.
const (
	orderC       = int32(0xc)
	orderFortran = int32(0xf)

	distributeNone    = int32(16)
	distributeBlock   = int32(17)
	distributeCyclic  = int32(18)
	distributeDefault = int32(19) // MPI_DISTRIBUTE_DFLT_DARG

	classInteger = int32(192)
	classReal    = int32(193)
	classComplex = int32(194)
)

// Comparisons of groups and communicators.
const (
	identical = int32(201) + iota
	congruent
	similar
	unequal
)

// firstDynamic is the first handle of an object that the program made; those below are constants.
const firstDynamic = uintptr(0x1000)
