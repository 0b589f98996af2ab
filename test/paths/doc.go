// Package paths tests what the ways between sites are like: what daemons measure of
// them, and that links keep to slow, narrow, policed, silent and inspected ones.
package paths
