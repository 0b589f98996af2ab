// Package debian runs Debian's MPI programs as they are, with the project's C libraries in place of those
// that they were compiled for, and compares what they say with what they say on their own library. Each
// test skips by name what is not installed; .ci/full installs it.
package debian
