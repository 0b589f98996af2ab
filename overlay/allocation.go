package overlay

import "strings"

// allocationPrefix begins the names of nodes that are hosts of a batch system's allocation, for the
// duration of the allocation. No permanent node has such a name.
const allocationPrefix = "alloc-"

// AllocationNode returns the node name of a host in an allocation, which the batch system
// identifies by its number: "alloc-4711.n1".
func AllocationNode(allocation, host string) string {
	return allocationPrefix + allocation + "." + host
}

// AllocationOf returns the common part of the names of an allocation's nodes, with or without the
// site and more before them: "sitea/alloc-4711" of "sitea/alloc-4711.n1". ok is false for the name
// of a permanent node.
func AllocationOf(node string) (allocation string, ok bool) {
	before, name := "", node
	if i := strings.LastIndexByte(node, '/'); i >= 0 {
		before, name = node[:i+1], node[i+1:]
	}
	if !strings.HasPrefix(name, allocationPrefix) {
		return "", false
	}
	name, _, _ = strings.Cut(name, ".")
	return before + name, true
}
