// Package gateway carries the data of a site whose nodes have no route out. It dials for
// them (Carry), brings in who was told its address (ServeOutside), and is their end of the
// techniques that need both ends at work (Ask, Answer). It holds what it carries to the
// site's quota, and counts it.
//
// It dials no address that the broker did not name to this site, and meets at none that
// NeverDialled or the site's admin refuses. It decides nothing about techniques, reads no
// byte of a link behind its first frame, and serves no calls: the frontal does, and hands
// on what is a gateway's. Who a connection is for it asks package directory, which it
// never tells anything.
//
// The decisions are functions of their arguments, time included: allowed, carries and
// returns. One lock of the Gateway guards them and the links. It is never held while
// calling or dialling, nor while anything of package directory or uplink is asked; the
// counters of package limit and the quota have locks of their own, which are taken under it.
package gateway
