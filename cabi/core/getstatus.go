package core

import "github.com/isthmus-grid/isthmus/mpilib"

// Requests stay as they are in these calls, with their handles; what a complete transfer received is in its place (MPI-5.0,
// section 3.7.6).

// status returns whether a request is complete, stores its status if so, and returns its error.
func (q *request) status(address uintptr) (done bool, err error) {
	st, done := empty, true
	if r := q.pending(); r != nil {
		st, done, err = r.Test()
	}
	if !done {
		return false, err
	}
	storeStatus(address, st)
	if q != nil && q.generalized != nil {
		err = q.generalized.describe(address)
	}
	return true, err
}

// RequestGetStatus is Test that leaves the request as it is.
func RequestGetStatus(request, flag, status uintptr) int32 {
	q, err := requestOf(request)
	if err != nil {
		return onWorld("MPI_Request_get_status", err)
	}
	done, err := q.status(status)
	store(flag, logicalOf(done))
	if done && err != nil {
		return q.comm.result("MPI_Request_get_status", err)
	}
	return success
}

// RequestGetStatusAll is Testall that leaves the requests as they are.
func RequestGetStatusAll(count int32, requests, flag, statuses uintptr) int32 {
	l, err := listOf("MPI_Request_get_status_all", count, requests)
	if err != nil {
		return onWorld("MPI_Request_get_status_all", err)
	}
	_, done, _ := mpilib.Testall(l.active...)
	store(flag, logicalOf(done))
	if !done {
		return success
	}
	return l.report(l.every(), statuses, l.statusOf)
}

// RequestGetStatusAny is Testany that leaves the requests as they are.
func RequestGetStatusAny(count int32, requests, index, flag, status uintptr) int32 {
	l, err := listOf("MPI_Request_get_status_any", count, requests)
	if err != nil {
		return onWorld("MPI_Request_get_status_any", err)
	}
	i, _, done, _ := mpilib.Testany(l.active...)
	store(flag, logicalOf(done))
	if i == mpilib.Undefined {
		store(index, undefined)
		if done {
			storeStatus(status, empty)
		}
		return success
	}
	store(index, int32(i))
	if _, err := l.all[i].status(status); err != nil {
		return l.all[i].comm.result(l.call, err)
	}
	return success
}

// RequestGetStatusSome is Testsome that leaves the requests as they are.
func RequestGetStatusSome(incount int32, requests, outcount, indices, statuses uintptr) int32 {
	l, err := listOf("MPI_Request_get_status_some", incount, requests)
	if err != nil {
		return onWorld("MPI_Request_get_status_some", err)
	}
	done, _, _ := mpilib.Testsome(l.active...)
	return l.reportSome(done, outcount, indices, statuses, l.statusOf)
}

// statusOf stores the status of the i-th request, which is complete.
func (l *list) statusOf(i int, status uintptr) error {
	_, err := l.all[i].status(status)
	return err
}
