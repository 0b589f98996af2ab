package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/info"
)

// Info is a list of keys with values, in the order in which the keys were
// first set (MPI-4.1, chapter 10). A nil Info is empty (MPI_INFO_NULL). Safe
// for concurrent use.
type Info = info.List

// NewInfo returns an Info of pairs of a key and a value.
func NewInfo(keysAndValues ...string) (*Info, error) {
	if len(keysAndValues)%2 != 0 {
		return nil, fmt.Errorf("mpilib: NewInfo: %w: %d strings are not pairs of a key and a value", ErrArg, len(keysAndValues))
	}
	i := new(Info)
	for ; len(keysAndValues) > 0; keysAndValues = keysAndValues[2:] {
		if err := i.Set(keysAndValues[0], keysAndValues[1]); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// The hints by which a program asserts not to do something on a communicator (MPI-4.1, section
// 7.4.4). Their values are "true" and "false", the default.
const (
	AssertNoAnyTag        = comm.AssertNoAnyTag        // mpi_assert_no_any_tag
	AssertNoAnySource     = comm.AssertNoAnySource     // mpi_assert_no_any_source
	AssertExactLength     = comm.AssertExactLength     // mpi_assert_exact_length
	AssertAllowOvertaking = comm.AssertAllowOvertaking // mpi_assert_allow_overtaking
)

// SetInfo sets hints of c (MPI_Comm_set_info; MPI-4.1, section 7.4.4). All ranks call it with the
// same assertions. Unknown keys are ignored, and hints that info does not contain stay unchanged. A
// receive from AnySource, or of AnyTag, on a communicator that asserts not to use it fails with
// ErrAsserted; the other assertions are stored and have no effect. HintColl applies to the
// collective calls after this one, which are the same on all ranks.
func (c *Comm) SetInfo(info *Info) error {
	if err := c.core.Usable(); err != nil {
		return c.called("SetInfo", err)
	}
	set, err := comm.Hints(c.core.Hints.Load()).With(info.Get)
	if err != nil {
		return c.called("SetInfo", err)
	}
	list, given, err := forcedBy(info)
	if err != nil {
		return c.called("SetInfo", err)
	}
	c.core.Hints.Store(uint32(set))
	if given {
		c.core.Force(list)
	}
	return nil
}

// GetInfo returns the hints that c knows, with their values (MPI_Comm_get_info; MPI-4.1, section
// 7.4.4). The caller owns the Info.
func (c *Comm) GetInfo() *Info {
	info := new(Info)
	for bit, key := range comm.HintKeys() {
		info.Set(key, fmt.Sprint(c.core.Hints.Load()&(1<<bit) != 0))
	}
	if forced := c.core.Forced(); forced != "" {
		info.Set(HintColl, forced)
	}
	return info
}
