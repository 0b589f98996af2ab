// Package account is what daemons account links by: the event of a link's end, which whatever
// counts, records or logs links takes. What becomes of it is the business of its subpackages: the
// audit log, Prometheus, reports to the broker.
//
// It decides nothing, has no state, and knows no daemon, clock or socket.
package account
