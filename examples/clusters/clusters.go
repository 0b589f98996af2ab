// Package clusters tells which ranks of a job belong together, for programs whose messages follow the
// network: the ranks of a group of the job, which a profile or a launcher made (World.JobGroups), or
// in a job without groups those at one site. It sends nothing and keeps no state.
package clusters

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Of returns the number of the cluster of each rank of a job's world, given the places and the groups
// of the job. Clusters are numbered from 0 in the order of their first ranks.
func Of(places []overlay.NodeID, groups []mpilib.JobGroup) []int {
	of := make([]int, len(places))
	if len(groups) > 0 {
		for i, g := range groups {
			for r := g.First; r < g.First+g.Count; r++ {
				of[r] = i
			}
		}
		return of
	}
	var sites []overlay.SiteID
	for r, place := range places {
		i := slices.Index(sites, place.Site)
		if i < 0 {
			i, sites = len(sites), append(sites, place.Site)
		}
		of[r] = i
	}
	return of
}
