// Package smoke runs a whole Isthmus in a lab once, and asks of each subject whether it works at all:
// connecting, running a job, the doctor, the status page, bad input, dying daemons, revocation. It is
// what the plain `go test ./...` sees of whole systems; it asserts no times and tries no corner. The
// sweeps in the folders beside it do, with the build tag system.
package smoke
