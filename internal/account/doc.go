// Package account is what daemons account links by: the event of a link's end, which whatever
// counts, records or logs links takes; and the table in which names are counted that a daemon does
// not choose, such as users, projects and sites. What becomes of them is the business of its
// subpackages: the audit log, Prometheus, reports to the broker.
//
// It decides nothing, and knows no daemon, clock or socket. State is in a [Bounded], which has one
// owner at a time.
package account
