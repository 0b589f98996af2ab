// Package gateway carries the data of a site whose nodes have no route out. It dials for them
// (Carry), accepts connections to the address it announces (ServeOutside), and is their end of the
// techniques that need both ends (Ask, Answer). It limits what it carries to the site's quota, and
// counts it.
//
// It dials no address that the broker did not name to this site, and takes part in no coordinated
// traversal with an address that NeverDialled or the site's admin refuses. It decides nothing about
// techniques, reads no byte of a link behind its first frame, and serves no calls: the frontal
// does, and passes on those for a gateway. It queries package directory for the target of a
// connection, but never changes it.
//
// The decisions are functions of their arguments, including time: allowed, carries and returns. One
// lock of the Gateway guards them and the links. It is never held while calling or dialling, nor
// during a call into package directory or uplink; the counters of package limit and the quota have
// their own locks, which are taken under it.
package gateway
