package engine

import (
	"context"
	"errors"
	"testing"
)

// Work of the owner's is waited for like messages, alone and among them, and ends only
// by Finish, also when it is given up.
func TestTask(t *testing.T) {
	e := New(Config{Size: 1})
	defer e.Close()
	var task, recv Request
	var told error
	e.Begin(&task, func(why error) { told = why; go task.Finish(why) })
	e.Irecv(&recv, everyone{}, 0, 0, 1, make([]byte, 1))
	if task.Done() || !task.Unmatched() {
		t.Error("it is done before it is finished")
	}
	task.Cancel()
	if task.Done() {
		t.Error("it was cancelled")
	}
	bad := errors.New("bad")
	go task.Finish(bad)
	if i, err := WaitAny(t.Context(), []*Request{&recv, &task}, -1); i != 1 || err != nil {
		t.Errorf("request %d, %v", i, err)
	}
	if _, err := task.Wait(t.Context()); err != bad || told != nil || task.Unmatched() {
		t.Errorf("it ended with %v, was given up with %v", err, told)
	}

	e.Begin(&task, func(why error) { told = why; go task.Finish(why) })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := task.Wait(gone); !errors.Is(err, context.Canceled) || !errors.Is(told, context.Canceled) {
		t.Errorf("it ended with %v, was given up with %v", err, told)
	}
	recv.Cancel()
}
