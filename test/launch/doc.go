// Package launch tests isthmus run and what implements it on the nodes: booking, staging, job
// agents, accounts, allocations of a batch system; and a fault at each step.
package launch
