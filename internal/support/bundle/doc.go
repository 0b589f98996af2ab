// Package bundle makes the file that goes from a site to a developer: texts that
// describe an installation, without what tells whose it is. Names of sites,
// users, projects, jobs and hosts, and addresses, become pseudonyms; keys,
// tokens and passwords are taken out whatever is wished.
//
// A pseudonym is the same for the same name within one bundle, and another in
// the next: it follows from a random salt that ends with the Mask. So what
// belongs together can be seen, and two bundles cannot be put together.
//
// Masking is done in two steps, because a log line says "alice" in places that
// no grammar finds. First all texts are learned from: where a structure says
// that something is a name (a key of a status, a label of a metric), that name
// is remembered. Then they are masked: every remembered name wherever it
// stands, everything that has the form of an address, a host name, a path or a
// key, and, where there is structure, every text that is not known to be
// harmless.
//
// The package opens no socket and reads no file; the caller collects. Its
// state is a [Mask] and a [Bundle], each used by one goroutine.
package bundle
