package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/datatypes"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// packed makes a call that moves elements to or from a buffer of size bytes, from where position
// says, which f moves on.
func packed(call string, d *datatypes.Type, err error, buf uintptr, count, size int64, position uintptr, f func(p mpilib.Part, at int64) (int, error)) error {
	if err != nil {
		return err
	}
	p, err := partOf(d, buf, count)
	if err != nil {
		return err
	}
	at := load[int64](position)
	if size < 0 || at < 0 || at > size {
		return failure(errArg, "%s: position %d in a buffer of %d bytes", call, at, size)
	}
	n, err := f(p, at)
	if err == nil {
		store(position, at+int64(n))
	}
	return err
}

// packInto is packed for calls that write the buffer: write appends the message to what it is given.
func packInto(call string, d *datatypes.Type, err error, inbuf uintptr, count int64, outbuf uintptr, size int64, position uintptr, write func([]byte, mpilib.Part) ([]byte, error)) error {
	return packed(call, d, err, inbuf, count, size, position, func(p mpilib.Part, at int64) (int, error) {
		message, err := write(nil, p)
		if err != nil {
			return 0, err
		}
		if int64(len(message)) > size-at {
			return 0, failure(errTruncate, "%s: %d bytes, and room for %d", call, len(message), size-at)
		}
		return copy(elements[byte](outbuf+uintptr(at), len(message)), message), nil
	})
}

// unpackFrom is packed for calls that read the buffer: read returns what it leaves of it.
func unpackFrom(call string, d *datatypes.Type, err error, inbuf uintptr, size int64, position, outbuf uintptr, count int64, read func([]byte, mpilib.Part) ([]byte, error)) error {
	return packed(call, d, err, outbuf, count, size, position, func(p mpilib.Part, at int64) (int, error) {
		message := elements[byte](inbuf+uintptr(at), int(size-at))
		rest, err := read(message, p)
		return len(message) - len(rest), err
	})
}

// Pack appends elements to a buffer (MPI-5.0, section 5.2).
func Pack(inbuf uintptr, incount int64, datatype, outbuf uintptr, outsize int64, position, comm uintptr) int32 {
	return onComm("MPI_Pack", comm, func(*communicator) error {
		d, err := typeOf(datatype)
		return packInto("MPI_Pack", d, err, inbuf, incount, outbuf, outsize, position, mpilib.Pack)
	})
}

// Unpack takes elements from a buffer (MPI-5.0, section 5.2).
func Unpack(inbuf uintptr, insize int64, position, outbuf uintptr, outcount int64, datatype, comm uintptr) int32 {
	return onComm("MPI_Unpack", comm, func(*communicator) error {
		d, err := typeOf(datatype)
		return unpackFrom("MPI_Unpack", d, err, inbuf, insize, position, outbuf, outcount, mpilib.Unpack)
	})
}

// PackSize returns how many bytes Pack appends (MPI-5.0, section 5.2).
func PackSize(incount int64, datatype, comm, size uintptr) int32 {
	return onComm("MPI_Pack_size", comm, func(*communicator) error {
		d, err := typeOf(datatype)
		if err != nil {
			return err
		}
		return packSize(d.Datatype.PackSize, incount, size)
	})
}

// packSize stores the bytes of count elements.
func packSize(bytes func(count int) (int, error), count int64, size uintptr) error {
	if count < 0 {
		return failure(errCount, "%d elements", count)
	}
	n, err := bytes(int(count))
	if err == nil {
		store(size, int64(n))
	}
	return err
}

// externalType returns a type for a data representation, of which there is one (MPI-5.0, section 5.3).
func externalType(datarep, handle uintptr) (*datatypes.Type, error) {
	const name = "external32\x00"
	for i := range len(name) {
		if load[byte](datarep+uintptr(i)) != name[i] {
			return nil, failure(errArg, "the data representation is not external32")
		}
	}
	return typeOf(handle)
}

// PackExternal is Pack in external32 (MPI-5.0, section 5.3).
func PackExternal(datarep, inbuf uintptr, incount int64, datatype, outbuf uintptr, outsize int64, position uintptr) int32 {
	d, err := externalType(datarep, datatype)
	return onWorld("MPI_Pack_external", packInto("MPI_Pack_external", d, err, inbuf, incount, outbuf, outsize, position, mpilib.PackExternal))
}

// UnpackExternal is Unpack of external32 (MPI-5.0, section 5.3).
func UnpackExternal(datarep, inbuf uintptr, insize int64, position, outbuf uintptr, outcount int64, datatype uintptr) int32 {
	d, err := externalType(datarep, datatype)
	return onWorld("MPI_Unpack_external", unpackFrom("MPI_Unpack_external", d, err, inbuf, insize, position, outbuf, outcount, mpilib.UnpackExternal))
}

// PackExternalSize returns how many bytes PackExternal appends (MPI-5.0, section 5.3).
func PackExternalSize(datarep uintptr, incount int64, datatype, size uintptr) int32 {
	d, err := externalType(datarep, datatype)
	if err == nil {
		err = packSize(d.Datatype.PackExternalSize, incount, size)
	}
	return onWorld("MPI_Pack_external_size", err)
}

// GetElements returns how many elements of predefined types a message has (MPI-5.0, section 5.1.11).
func GetElements(status, datatype, count uintptr) int32 {
	d, err := typeOf(datatype)
	if err == nil {
		store(count, int64(loadStatus(status).GetElements(d.Datatype)))
	}
	return onWorld("MPI_Get_elements", err)
}

// StatusSetElements sets what GetElements returns, for requests of the program's (MPI-5.0, section 13.3).
func StatusSetElements(address, datatype uintptr, count int64) int32 {
	const call = "MPI_Status_set_elements"
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld(call, err)
	}
	bytes, ok := d.Bytes(count)
	if !ok {
		return onWorld(call, failure(errCount, "%d elements of %v", count, d.Datatype))
	}
	return onStatus(call, address, func(s *status) { s.low, s.high = uint32(bytes), uint32(uint64(bytes)>>32) })
}
