// Package frontal is a site's gateway. It stands where the site's nodes and
// the outside both reach, keeps the site's one session with the broker, and
// accepts those of the site's helpers. It registers their processes, answers
// their questions from a cache and asks the broker once for what many want to
// know, passes introductions on, and, where nodes have no route out, carries
// their data: it dials for them, brings in who was told its address, and is
// their end of the techniques that need both ends at work.
//
// It decides nothing about techniques and reads no byte of a link behind its
// first frame. It dials no address that the broker did not name to this site,
// and meets at none that neverDialled or the site's admin refuses.
// Everything it knows is in memory and comes from below or above: after a
// restart the helpers register again, and after the broker's restart it does.
// Links that it does not carry outlive it.
//
// The decisions are functions of their arguments, time included: cache,
// registry, allowed, carries and returns. One lock of the Frontal guards the
// last four, the resolver's own lock the cache; neither is held while talking
// to anybody.
package frontal
