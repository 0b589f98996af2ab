// Package profile reads what a job asks of the grid: its groups of processes, the requirements of
// each process on its host, and the limits on the network within a group and between groups.
//
// A profile is written as YAML:
//
//	job: ray2mesh
//	program: {path: ./ray2mesh, args: [mesh.dat], inputs: [mesh.dat]}
//	groups:
//	- name: master
//	  processes: 1
//	  memory: 4GiB
//	- name: workers
//	  processes: 32
//	  cores: 2
//	  inside: {latency: 1ms, bandwidth: 1Gbit/s}
//	between:
//	- groups: [master, workers]
//	  latency: 20ms
//	similar:
//	- groups: [master, workers]
//	  power: 20%
//
// or as the XML that QCG-OMPI calls a JobProfile (Fig. 3 of its paper). A latency is a round trip,
// and an upper bound; all other quantities are lower bounds. Every quantity is followed by its
// unit, except for the two of the paper's XML, which default to kbit/s and ms.
//
// Every fault names the file, the line, the key and the permitted values, and all faults are
// reported at once. An unknown key in YAML is a fault. The XML has many elements that are
// irrelevant here; those are listed in [Profile.Ignored], but an unknown demand is a fault: it
// would not be met.
//
// The package knows neither hosts nor sites: matching is package match. It keeps no state.
package profile
