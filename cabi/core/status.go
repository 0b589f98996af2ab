package core

import "github.com/isthmus-grid/isthmus/mpilib"

// status is MPI_Status as the standard's ABI has it; what follows the first three fields is ours.
type status struct {
	source, tag, err int32
	cancelled        int32
	low, high        uint32 // bytes of the message
	_                [2]int32
}

// empty is the status of a request that there is not (MPI-5.0, section 3.7.3).
var empty = mpilib.Status{Source: mpilib.AnySource, Tag: mpilib.AnyTag}

// storeStatus writes a status, unless the program ignores it (MPI_STATUS_IGNORE is 0). The field
// for errors stays (MPI-5.0, section 3.2.5).
func storeStatus(address uintptr, st mpilib.Status) {
	if address == 0 {
		return
	}
	s := (*status)(pointer(address))
	s.source, s.tag, s.cancelled = sourceFrom(st.Source), tagFrom(st.Tag), logicalOf(st.Cancelled)
	s.low, s.high = uint32(st.Bytes), uint32(uint64(st.Bytes)>>32)
}

// storeError writes the field for errors of a status.
func storeError(address uintptr, class int32) {
	if address != 0 {
		(*status)(pointer(address)).err = class
	}
}

// at is the address of the i-th of an array of statuses, 0 if they are ignored.
func at(statuses uintptr, i int) uintptr {
	if statuses == 0 {
		return 0
	}
	return statuses + uintptr(i)*32
}

// loadStatus reads what a count is asked of.
func loadStatus(address uintptr) mpilib.Status {
	s := (*status)(pointer(address))
	return mpilib.Status{Cancelled: s.cancelled != 0, Bytes: int(uint64(s.high)<<32 | uint64(s.low))}
}

// onStatus makes a call on a status, which MPI_STATUS_IGNORE is not.
func onStatus(call string, address uintptr, f func(s *status)) int32 {
	if address == 0 {
		return onWorld(call, failure(errArg, "the status is MPI_STATUS_IGNORE"))
	}
	f((*status)(pointer(address)))
	return success
}

// StatusGetSource returns the source of a message (MPI-5.0, section 3.2.5).
func StatusGetSource(address, source uintptr) int32 {
	return onStatus("MPI_Status_get_source", address, func(s *status) { store(source, s.source) })
}

// StatusGetTag returns its tag.
func StatusGetTag(address, tag uintptr) int32 {
	return onStatus("MPI_Status_get_tag", address, func(s *status) { store(tag, s.tag) })
}

// StatusGetError returns its error.
func StatusGetError(address, code uintptr) int32 {
	return onStatus("MPI_Status_get_error", address, func(s *status) { store(code, s.err) })
}

// StatusSetSource sets what StatusGetSource returns, for requests of the program's (MPI-5.0, section 13.3).
func StatusSetSource(address uintptr, source int32) int32 {
	return onStatus("MPI_Status_set_source", address, func(s *status) { s.source = source })
}

// StatusSetTag sets what StatusGetTag returns.
func StatusSetTag(address uintptr, tag int32) int32 {
	return onStatus("MPI_Status_set_tag", address, func(s *status) { s.tag = tag })
}

// StatusSetError sets what StatusGetError returns.
func StatusSetError(address uintptr, code int32) int32 {
	return onStatus("MPI_Status_set_error", address, func(s *status) { s.err = code })
}

// StatusSetCancelled sets what TestCancelled returns.
func StatusSetCancelled(address uintptr, flag int32) int32 {
	return onStatus("MPI_Status_set_cancelled", address, func(s *status) { s.cancelled = logicalOf(flag != 0) })
}

// GetCount returns how many elements of a datatype a message has (MPI-5.0, section 3.2.5).
func GetCount(status, datatype, count uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Get_count", err)
	}
	store(count, int64(loadStatus(status).GetCount(d.Datatype)))
	return success
}

// TestCancelled returns whether a request was cancelled.
func TestCancelled(status, flag uintptr) int32 {
	store(flag, logicalOf(loadStatus(status).Cancelled))
	return success
}
