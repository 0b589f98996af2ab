package core

import (
	"sync"

	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// AbiGetInfo describes the ABI in a new info (MPI-5.0, section 20.2).
func AbiGetInfo(info uintptr) int32 {
	return onWorld("MPI_Abi_get_info", giveInfo(info, "mpi_aint_size", "8", "mpi_count_size", "8", "mpi_offset_size", "8"))
}

// fortran is what a Fortran interface above this library has said of its compiler (MPI-5.0, section 20.4), but for logical values.
var fortran struct {
	mu   sync.Mutex
	info *mpilib.Info
}

// fortranSizes are the bytes that the types have here.
var fortranSizes = map[string]string{"mpi_logical_size": "4", "mpi_integer_size": "4", "mpi_real_size": "4", "mpi_double_precision_size": "8"}

// AbiSetFortranInfo notes what Fortran's types are, once.
func AbiSetFortranInfo(info uintptr) int32 {
	return onInfo("MPI_Abi_set_fortran_info", info, func(i *mpilib.Info) error {
		for key, size := range fortranSizes {
			if given, ok := i.Get(key); ok && given != size {
				return failure(errArg, "%s is %s, and %s in this library: compile Fortran without options that change it", key, given, size)
			}
		}
		fortran.mu.Lock()
		defer fortran.mu.Unlock()
		if fortran.info != nil {
			return failure(errABI, "what Fortran's types are was said before")
		}
		fortran.info = i.Dup()
		return nil
	})
}

// AbiGetFortranInfo returns it in a new info; MPI_INFO_NULL if nothing was said.
func AbiGetFortranInfo(info uintptr) int32 {
	fortran.mu.Lock()
	defer fortran.mu.Unlock()
	if store(info, infoNull); fortran.info != nil {
		store(info, infos.Add(fortran.info.Dup()))
	}
	return success
}

// maxLogical is the size of the largest logical value.
const maxLogical = 16

// checkLogical returns an error for a size that no logical value has.
func checkLogical(size int32) error {
	if size < 1 || size > maxLogical || size&(size-1) != 0 {
		return failure(errArg, "no logical value has %d bytes", size)
	}
	return nil
}

// AbiSetFortranBooleans notes what .TRUE. and .FALSE. are, once.
func AbiSetFortranBooleans(size int32, logicalTrue, logicalFalse uintptr) int32 {
	err := checkLogical(size)
	if err == nil {
		err = setBooleans(elements[byte](logicalTrue, int(size)), elements[byte](logicalFalse, int(size)))
	}
	return onWorld("MPI_Abi_set_fortran_booleans", err)
}

func setBooleans(logicalTrue, logicalFalse []byte) error {
	if !reductions.SetLogicals(logicalTrue, logicalFalse) {
		return failure(errABI, "what .TRUE. and .FALSE. are was said before")
	}
	return nil
}

// AbiGetFortranBooleans returns them, if they were set with this size.
func AbiGetFortranBooleans(size int32, logicalTrue, logicalFalse, isSet uintptr) int32 {
	if err := checkLogical(size); err != nil {
		return onWorld("MPI_Abi_get_fortran_booleans", err)
	}
	yes, no := reductions.Logicals()
	known := len(yes) == int(size)
	if store(isSet, logicalOf(known)); known {
		copy(elements[byte](logicalTrue, int(size)), yes)
		copy(elements[byte](logicalFalse, int(size)), no)
	}
	return success
}
