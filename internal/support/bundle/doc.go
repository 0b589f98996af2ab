// Package bundle makes the file that a site sends to a developer: texts that describe an
// installation, without identifying it. Names of sites, users, projects, jobs and hosts, and
// addresses, are replaced by pseudonyms; keys, tokens and passwords are removed in any case.
//
// A pseudonym is the same for the same name within one bundle, and different in the next: it is
// derived from a random salt that is discarded with the Mask. So related entries can be recognised,
// and two bundles cannot be correlated.
//
// Masking takes two steps, because a log line may contain "alice" in places that no grammar finds.
// First the Mask learns from all texts: where a structure shows that something is a name (a key of
// a status, a label of a metric), it remembers that name. Then it masks them: every remembered name
// wherever it occurs, everything that has the form of an address, a host name, a path or a key,
// and, where there is structure, every text that is not known to be harmless.
//
// The package opens no socket and reads no file; the caller collects the texts. Its state is a
// [Mask] and a [Bundle], each used by one goroutine.
package bundle
