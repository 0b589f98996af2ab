package core

import (
	"strings"
	"testing"
)

// What users set for other libraries is named once, in order; what launchers set is not.
func TestIgnoredSettings(t *testing.T) {
	const says = "settings of other MPI libraries are ignored: "
	for environ, want := range map[string]string{
		"": "",
		"PATH=/bin ISTHMUS_COLL=x OMPI_NUM_APP_CTX=1 FIRST=1":                   "",
		"UCX_TLS=tcp PATH=/bin OMPI_MCA_btl=tcp,self":                           says + "OMPI_MCA_btl, UCX_TLS",
		"MPICH_ASYNC_PROGRESS=1 FI_PROVIDER= MPIR_CVAR_CH4_OFI_ENABLE_DATA=0":   says + "FI_PROVIDER, MPICH_ASYNC_PROGRESS, MPIR_CVAR_CH4_OFI_ENABLE_DATA",
		"UCX_1= UCX_2= UCX_3= UCX_4= UCX_5= UCX_6= UCX_7= UCX_8= UCX_9= UCX_A=": says + "UCX_1, UCX_2, UCX_3, UCX_4, UCX_5, UCX_6, UCX_7, UCX_8 and 2 more",
		// those of Hydra and of Open MPI's mpirun
		"MPIR_CVAR_CH3_INTERFACE_HOSTNAME=n1 OMPI_MCA_ess=^singleton OMPI_MCA_ess_base_jobid=1 OMPI_MCA_initial_wdir=/ OMPI_MCA_mpi_oversubscribe=0 " +
			"OMPI_MCA_orte_launch=1 OMPI_MCA_pmix=^s1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_shmem_RUNTIME_QUERY_hint=mmap OMPI_MCA_plm_rsh_agent=ssh": "",
	} {
		if got := ignoredSettings(strings.Fields(environ)); got != want {
			t.Errorf("%s: %q, want %q", environ, got, want)
		}
	}
}
