// Package profile reads what a job asks of the grid: its groups of processes,
// what each process needs of its host, and what the network has to be like
// within a group and between groups.
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
// or as the XML that QCG-OMPI calls a JobProfile (Fig. 3 of its paper). A
// latency is a round trip, and the most that will do; all other quantities are
// the least that will do. Every quantity has its unit written behind it, but
// for the two of the paper's XML, which stay kbit/s and ms where none is given.
//
// Every fault names the file, the line, the key and what is allowed there, and
// all of them are reported at once. A key of YAML that is not known is a fault.
// The XML has many elements that are none of our business; those are listed as
// [Profile.Ignored], but an unknown demand is a fault: it would not be met.
//
// The package knows neither hosts nor sites: matching is package match. It
// keeps no state.
package profile
