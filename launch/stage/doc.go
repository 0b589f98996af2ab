// Package stage keeps the files of jobs on a node: programs and inputs, named by their content and
// cut into chunks, so that content that is already there need not be sent again, a partial transfer
// is resumed, and the files used are those that were meant.
//
// A [Manifest] lists the chunks of a file. The receiver asks its [Store] which of them are missing,
// has these sent, and assembles the file; each chunk is verified against its name on arrival and
// again before use. The sender need not be trusted: it has what it sent, and knowing a sum gives nobody
// the content.
//
// All state is the files of one directory, one for each chunk, which belongs to one Store at a
// time; its size is bounded, and the least recently used chunks are removed first. The package
// knows nothing of networks or jobs.
package stage
