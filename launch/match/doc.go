// Package match finds hosts for the groups of a job profile: for each group the hosts of its
// processes, so that hosts have room and every limit on the network within and between groups is
// kept; or it returns which requirements prevent that and what the nearest offer is.
//
// The problem contains graph colouring and bin packing, so the search is bounded, and reports when
// it gave up. It has three layers, each with its own backtracking:
//
//	zones   which zones each group may use, where a zone is hosts of a site that no
//	        limit of the profile tells apart by their network; here the limits of
//	        the network are kept (search.go)
//	totals  how many processes of each group go to each class of hosts, which is
//	        those of a zone with cores of one speed (totals.go)
//	hosts   which host of the class each of them gets (pack.go)
//
// The hardest group comes first, and for it the zone that it fills best. Before each step a maximum
// flow from groups to classes refutes early most of what cannot work (flow.go); where all processes
// need the same, the flow is exact.
//
// Ranks are numbered group by group, in the order of the profile.
//
// The package is a function of a profile and of measurements: it knows no sockets and no clock, and
// keeps no state.
package match
