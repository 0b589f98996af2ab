package core

import (
	"context"
	"sync"

	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// request is what a handle of a request names: a transfer or a collective call, or one that is started repeatedly.
type request struct {
	comm        *communicator
	once        *mpilib.Request
	repeated    repeatable
	generalized *generalized // whose completion once is; otherwise nil

	held held
	user bool // it calls a function of the program's
}

// held is what a request is of, where it can be neither cancelled, nor freed while it is active; otherwise 0.
type held uint8

const (
	collectiveCall held = iota + 1
	partitionedTransfer
)

func (h held) String() string {
	if h == collectiveCall {
		return "a collective call"
	}
	return "a partitioned transfer"
}

// repeatable is what is started repeatedly.
type repeatable interface {
	Start() error
	Request() *mpilib.Request                    // nil if it is not active
	Wait(context.Context) (mpilib.Status, error) // after which it is not active
}

var requests handles.Table[*request]

// requestOf returns the request of a handle, nil for MPI_REQUEST_NULL.
func requestOf(handle uintptr) (*request, error) {
	if handle == requestNull {
		return nil, nil
	}
	q, ok := requests.Get(handle)
	if !ok {
		return nil, failure(errRequest, "%#x is no request", handle)
	}
	return q, nil
}

// pending returns the transfer, nil if there is none or if it is not active.
func (q *request) pending() *mpilib.Request {
	switch {
	case q == nil:
		return nil
	case q.repeated != nil:
		return q.repeated.Request()
	}
	return q.once
}

// complete waits for the transfer of the handle at an address, stores its status, and releases it unless
// it can be started again.
func (q *request) complete(address, status uintptr) (err error) {
	st := empty
	if q.pending() == nil {
		storeStatus(status, st)
		return nil
	}
	if q.repeated != nil {
		st, err = q.repeated.Wait(background)
	} else {
		st, err = q.once.Wait(background)
	}
	storeStatus(status, st)
	if classOf(err) == errPending {
		return err
	}
	if q.user {
		callbacks.Completed()
	}
	if q.generalized != nil {
		err = q.generalized.end(status)
	}
	if q.once != nil {
		requests.Remove(load[uintptr](address))
		store(address, requestNull)
	}
	return err
}

// finish completes a request, stores its status and passes on its error.
func (q *request) finish(call string, address, status uintptr) int32 {
	if err := q.complete(address, status); err != nil {
		return q.comm.result(call, err)
	}
	return success
}

// Wait waits for a request (MPI-5.0, section 3.7.3).
func Wait(request, status uintptr) int32 {
	q, err := requestOf(load[uintptr](request))
	if err != nil {
		return onWorld("MPI_Wait", err)
	}
	return q.finish("MPI_Wait", request, status)
}

// Test is Wait if the request is complete.
func Test(request, flag, status uintptr) int32 {
	q, err := requestOf(load[uintptr](request))
	if err != nil {
		return onWorld("MPI_Test", err)
	}
	if r := q.pending(); r != nil {
		if _, done, _ := r.Test(); !done {
			store(flag, int32(0))
			return success
		}
	}
	store(flag, int32(1))
	return q.finish("MPI_Test", request, status)
}

// RequestFree lets a transfer complete by itself, and makes its handle invalid.
func RequestFree(request uintptr) int32 {
	handle := load[uintptr](request)
	q, err := requestOf(handle)
	if err != nil || q == nil {
		return onWorld("MPI_Request_free", failure(errRequest, "%#x is no request", handle))
	}
	if q.generalized != nil {
		store(request, requestNull)
		over, err := q.generalized.release()
		if over {
			requests.Remove(handle)
		}
		return onWorld("MPI_Request_free", err)
	}
	if q.held != 0 && q.pending() != nil {
		return q.comm.result("MPI_Request_free", failure(errRequest, "%v is active; wait for it", q.held))
	}
	if p, ok := q.repeated.(*partitioned); ok {
		if err := p.Free(); err != nil {
			return q.comm.result("MPI_Request_free", err)
		}
	}
	q.release()
	requests.Remove(handle)
	store(request, requestNull)
	return success
}

// released are the goroutines that wait for transfers whose requests were freed. Leaving the world ends them.
var released sync.WaitGroup

// release has a transfer complete without its handle: what a receive gets for several places of memory is put there by
// whoever sees its completion.
func (q *request) release() {
	r := q.pending()
	if r == nil {
		return
	}
	if _, done, _ := r.Test(); !done {
		released.Go(func() { r.Wait(background) })
	}
}

// Cancel cancels a transfer if possible; it still has to be completed.
func Cancel(request uintptr) int32 {
	q, err := requestOf(load[uintptr](request))
	if err == nil && q != nil && q.held != 0 {
		return q.comm.result("MPI_Cancel", failure(errRequest, "%v cannot be cancelled; wait for it", q.held))
	}
	if err == nil && q != nil && q.generalized != nil {
		return onWorld("MPI_Cancel", q.generalized.stop())
	}
	if r := q.pending(); err == nil && r != nil {
		return q.comm.result("MPI_Cancel", r.Cancel())
	}
	return onWorld("MPI_Cancel", failure(errRequest, "there is no active request"))
}

// list is the requests of a call for several.
type list struct {
	call      string
	addresses uintptr // of the first handle
	all       []*request
	active    []*mpilib.Request // nil where there is none
}

// listOf reads an array of handles.
func listOf(call string, count int32, addresses uintptr) (*list, error) {
	if count < 0 {
		return nil, failure(errCount, "%d requests", count)
	}
	l := &list{call: call, addresses: addresses, all: make([]*request, count), active: make([]*mpilib.Request, count)}
	for i, handle := range elements[uintptr](addresses, int(count)) {
		q, err := requestOf(handle)
		if err != nil {
			return nil, err
		}
		l.all[i], l.active[i] = q, q.pending()
	}
	return l, nil
}

// address is where the i-th handle is.
func (l *list) address(i int) uintptr { return l.addresses + uintptr(i)*8 }

// isActive reports whether any of the requests is.
func (l *list) isActive() bool {
	for _, r := range l.active {
		if r != nil {
			return true
		}
	}
	return false
}

// finish completes the requests of some indices, with the j-th status for the j-th of them.
func (l *list) finish(indices []int, statuses uintptr) int32 {
	return l.report(indices, statuses, l.complete)
}

// complete completes the i-th request.
func (l *list) complete(i int, status uintptr) error { return l.all[i].complete(l.address(i), status) }

// report has result store the statuses of the requests of some indices. If any has failed, the statuses have the errors (MPI-5.0,
// section 3.7.5).
func (l *list) report(indices []int, statuses uintptr, result func(i int, status uintptr) error) int32 {
	results := make([]error, len(indices))
	failed := -1
	for j, i := range indices {
		if results[j] = result(i, at(statuses, j)); results[j] != nil {
			failed = j
		}
	}
	if failed < 0 {
		return success
	}
	for j, err := range results {
		storeError(at(statuses, j), classOf(err))
	}
	if c := l.all[indices[failed]].comm; c.result(l.call, results[failed]) == success {
		return success
	}
	return errInStatus
}

// finishOne completes one request, and stores its index.
func (l *list) finishOne(i int, index, status uintptr) int32 {
	if i == mpilib.Undefined {
		store(index, undefined)
		storeStatus(status, empty)
		return success
	}
	store(index, int32(i))
	return l.all[i].finish(l.call, l.address(i), status)
}

// every is the indices of all requests.
func (l *list) every() []int {
	out := make([]int, len(l.all))
	for i := range out {
		out[i] = i
	}
	return out
}

// Waitall waits for all requests.
func Waitall(count int32, requests, statuses uintptr) int32 {
	l, err := listOf("MPI_Waitall", count, requests)
	if err != nil {
		return onWorld("MPI_Waitall", err)
	}
	return l.finish(l.every(), statuses)
}

// Testall is Waitall if all are complete.
func Testall(count int32, requests, flag, statuses uintptr) int32 {
	l, err := listOf("MPI_Testall", count, requests)
	if err != nil {
		return onWorld("MPI_Testall", err)
	}
	_, done, _ := mpilib.Testall(l.active...)
	store(flag, logicalOf(done))
	if !done {
		return success
	}
	return l.finish(l.every(), statuses)
}

// Waitany waits for one request.
func Waitany(count int32, requests, index, status uintptr) int32 {
	l, err := listOf("MPI_Waitany", count, requests)
	if err != nil {
		return onWorld("MPI_Waitany", err)
	}
	i, _, _ := mpilib.Waitany(background, l.active...)
	return l.finishOne(i, index, status)
}

// Testany is Waitany if one is complete.
func Testany(count int32, requests, index, flag, status uintptr) int32 {
	l, err := listOf("MPI_Testany", count, requests)
	if err != nil {
		return onWorld("MPI_Testany", err)
	}
	i, _, done, _ := mpilib.Testany(l.active...)
	if !done && l.isActive() {
		store(flag, int32(0))
		store(index, undefined)
		return success
	}
	store(flag, int32(1))
	return l.finishOne(i, index, status)
}

// Waitsome waits for some requests.
func Waitsome(incount int32, requests, outcount, indices, statuses uintptr) int32 {
	l, err := listOf("MPI_Waitsome", incount, requests)
	if err != nil {
		return onWorld("MPI_Waitsome", err)
	}
	done, _, _ := mpilib.Waitsome(background, l.active...)
	return l.reportSome(done, outcount, indices, statuses, l.complete)
}

// Testsome is Waitsome for those that are complete.
func Testsome(incount int32, requests, outcount, indices, statuses uintptr) int32 {
	l, err := listOf("MPI_Testsome", incount, requests)
	if err != nil {
		return onWorld("MPI_Testsome", err)
	}
	done, _, _ := mpilib.Testsome(l.active...)
	return l.reportSome(done, outcount, indices, statuses, l.complete)
}

// reportSome is report that stores the number of the requests and their indices, too.
func (l *list) reportSome(done []int, outcount, indices, statuses uintptr, result func(i int, status uintptr) error) int32 {
	if !l.isActive() {
		store(outcount, undefined)
		return success
	}
	store(outcount, int32(len(done)))
	out := elements[int32](indices, len(done))
	for j, i := range done {
		out[j] = int32(i)
	}
	return l.report(done, statuses, result)
}
