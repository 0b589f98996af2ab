package core

import "github.com/isthmus-grid/isthmus/mpilib"

// Requests stay as they are in these calls, with their handles; what a complete transfer received is in its place (MPI-5.0,
// section 3.7.6).

// status returns whether a request is complete, and its status and error.
func (q *request) status() (st mpilib.Status, done bool, err error) {
	r := q.pending()
	if r == nil {
		return empty, true, nil
	}
	return r.Test()
}

// RequestGetStatus is Test that leaves the request as it is.
func RequestGetStatus(request, flag, status uintptr) int32 {
	q, err := requestOf(request)
	if err != nil {
		return onWorld("MPI_Request_get_status", err)
	}
	st, done, err := q.status()
	store(flag, logicalOf(done))
	if !done {
		return success
	}
	storeStatus(status, st)
	if err != nil {
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
	i, st, done, err := mpilib.Testany(l.active...)
	store(flag, logicalOf(done))
	if i == mpilib.Undefined {
		store(index, undefined)
	} else {
		store(index, int32(i))
	}
	if done {
		storeStatus(status, st)
	}
	if err != nil {
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

// statusOf is the status of the i-th request, which is complete.
func (l *list) statusOf(i int) (mpilib.Status, error) {
	st, _, err := l.all[i].status()
	return st, err
}
