// Package place determines which ranks share a node or a site: the ranks of a communicator exchange
// their locations, and are numbered by what they share. It knows neither communicators nor the
// source of a location, and has no state.
package place

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Gather returns the location of each of size ranks, which all ranks contribute.
func Gather(ctx context.Context, call collectives.Comm, size int, own overlay.NodeID) ([]overlay.NodeID, error) {
	all, err := coll.Allgather(ctx, call, size, RecordOf(own))
	if err != nil {
		return nil, err
	}
	places := make([]overlay.NodeID, len(all))
	for r := range all {
		if places[r], err = all[r].Place(); err != nil {
			return nil, fmt.Errorf("the place of rank %d: %w", r, err)
		}
	}
	return places, nil
}

// Record is a NodeID of constant size: two names with their lengths.
type Record [2][1 + overlay.MaxNameLen]byte

// RecordOf returns the record of a location.
func RecordOf(place overlay.NodeID) (r Record) {
	for i, name := range []string{string(place.Site), place.Name} {
		r[i][0] = byte(copy(r[i][1:], name))
	}
	return r
}

// Place returns the location of r.
func (r *Record) Place() (overlay.NodeID, error) {
	var names [2]string
	for i := range r {
		n := int(r[i][0])
		if n > overlay.MaxNameLen {
			return overlay.NodeID{}, fmt.Errorf("%w: a name of %d bytes; do all ranks run the same version?", mpi.ErrMismatch, n)
		}
		names[i] = string(r[i][1 : 1+n])
	}
	return overlay.NodeID{Site: overlay.SiteID(names[0]), Name: names[1]}, nil
}

// BySite returns, for each rank, the first rank of its site.
func BySite(places []overlay.NodeID) []int { return firstSharing(places, true) }

// ByNode returns, for each rank, the first rank of its node.
func ByNode(places []overlay.NodeID) []int { return firstSharing(places, false) }

func firstSharing(places []overlay.NodeID, site bool) []int {
	first := make(map[overlay.NodeID]int)
	sharing := make([]int, len(places))
	for r, place := range places {
		if site {
			place.Name = ""
		}
		if _, known := first[place]; !known {
			first[place] = r
		}
		sharing[r] = first[place]
	}
	return sharing
}

// Dense numbers the values of a list from 0, in the order of their first occurrence.
func Dense(list []int) []int {
	number := map[int]int{}
	numbers := make([]int, len(list))
	for i, v := range list {
		if _, known := number[v]; !known {
			number[v] = len(number)
		}
		numbers[i] = number[v]
	}
	return numbers
}
