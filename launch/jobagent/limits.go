package jobagent

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// limit is a resource limit of a process.
type limit struct {
	name     string
	resource int
	value    uint64
}

// parseLimits parses the limits of a Start, in which each occurs at most once.
func parseLimits(list []*nodepb.Limit) ([]limit, error) {
	var limits []limit
	seen := map[string]bool{}
	for _, l := range list {
		resource, known := resources[l.Name]
		switch {
		case len(resources) == 0:
			return nil, fmt.Errorf("limit %.20s: limits can only be set on Linux", l.Name)
		case !known || seen[l.Name]:
			return nil, fmt.Errorf("limit %.20q: want each once of as, core, cpu, data, fsize, memlock, nofile, nproc and stack", l.Name)
		}
		seen[l.Name] = true
		limits = append(limits, limit{l.Name, resource, l.Value})
	}
	return limits, nil
}

// CheckLimits returns an error if the limits of a Start are invalid.
func CheckLimits(list []*nodepb.Limit) error {
	_, err := parseLimits(list)
	return err
}
