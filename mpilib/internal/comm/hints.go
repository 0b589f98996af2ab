package comm

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// The keys of the hints by which a program asserts not to do something (MPI-4.1, section 7.4.4).
// Their values are "true" and "false", the default.
const (
	AssertNoAnyTag        = "mpi_assert_no_any_tag"
	AssertNoAnySource     = "mpi_assert_no_any_source"
	AssertExactLength     = "mpi_assert_exact_length"
	AssertAllowOvertaking = "mpi_assert_allow_overtaking"
)

// HintKeys returns the keys, in the order of their bits in Hints.
func HintKeys() []string {
	return []string{AssertNoAnyTag, AssertNoAnySource, AssertExactLength, AssertAllowOvertaking}
}

// Hints are the hints of a communicator, as bits.
type Hints uint32

const (
	hintNoAnyTag Hints = 1 << iota
	hintNoAnySource
)

// With returns h with the values that get has for the keys.
func (h Hints) With(get func(key string) (value string, ok bool)) (Hints, error) {
	for bit, key := range HintKeys() {
		switch value, ok := get(key); {
		case !ok:
		case value == "true":
			h |= 1 << bit
		case value == "false":
			h &^= 1 << bit
		default:
			return 0, fmt.Errorf("%w: hint %s is %q; give true or false", mpi.ErrArg, key, value)
		}
	}
	return h, nil
}

func (c *Core) checkAsserted(src, tag int) error {
	h := Hints(c.Hints.Load())
	switch {
	case h == 0:
	case h&hintNoAnySource != 0 && src == mpi.AnySource:
		return fmt.Errorf("%w: %s is true of %s; name the source, or set the hint to false", mpi.ErrAsserted, AssertNoAnySource, c.Name())
	case h&hintNoAnyTag != 0 && tag == mpi.AnyTag:
		return fmt.Errorf("%w: %s is true of %s; name the tag, or set the hint to false", mpi.ErrAsserted, AssertNoAnyTag, c.Name())
	}
	return nil
}
