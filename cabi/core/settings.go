package core

import (
	"fmt"
	"slices"
	"strings"
)

// foreignSettings are how variables begin that set something of other MPI libraries and of the libraries below them.
var foreignSettings = []string{"OMPI_MCA_", "MPICH_", "MPIR_CVAR_", "FI_", "UCX_"}

// launcherSettings are how those begin that launchers set for each job, or that are for a launcher itself.
var launcherSettings = []string{
	"OMPI_MCA_ess", "OMPI_MCA_hwloc_", "OMPI_MCA_initial_wdir", "OMPI_MCA_mpi_oversubscribe", "OMPI_MCA_orte_", "OMPI_MCA_plm", "OMPI_MCA_pmix",
	"OMPI_MCA_prte_", "OMPI_MCA_ras", "OMPI_MCA_rmaps", "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
}

// maxNamed bounds the settings that are named.
const maxNamed = 8

// ignoredSettings names the settings for other MPI libraries in an environment, which this one ignores; "" if there are none.
func ignoredSettings(environ []string) string {
	var names []string
	begins := func(name string) func(string) bool {
		return func(with string) bool { return strings.HasPrefix(name, with) }
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if slices.ContainsFunc(foreignSettings, begins(name)) && !slices.ContainsFunc(launcherSettings, begins(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	more := ""
	if n := len(names) - maxNamed; n > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return "settings of other MPI libraries are ignored: " + strings.Join(names, ", ") + more
}
