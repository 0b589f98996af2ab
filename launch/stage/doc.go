// Package stage keeps the files of jobs on a node: programs and inputs, named by
// their content and cut into chunks, so that what is there already need not be
// sent again, what was sent in part is resumed, and what is used is what was
// meant.
//
// A [Manifest] says which chunks a file is made of. The receiver asks its [Store]
// which of them are missing, has these sent, and puts the file together; each
// chunk is checked against its name when it comes in and again before it is
// used. Nobody need trust who sends.
//
// All state is the files of one directory, one for each chunk, which belongs to
// one Store at a time; its size is bounded, and what was used longest ago goes
// first. The package knows nothing of networks or jobs.
package stage
