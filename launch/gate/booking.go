package gate

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/launch/reserve"
)

// booking is one reservation and all that belongs to it here.
//
//	held --Start--> execute: processes, then output files, then Over
//	  |                        | acknowledged, cancelled, or nobody cares
//	  v                        v
//	finish: the folder goes, and with it the booking
type booking struct {
	k   *Keeper
	key reserve.Key
	who Asker
	ask reserve.Ask

	// Of the keeper's Serve.
	hold      reserve.Hold
	stream    *conversation // that is attached; nil: none
	orphan    time.Time     // when it ends for want of one; zero: there is one
	program   *program      // nil before Start
	committed bool
	ending    bool // finish was called

	begun  atomic.Pointer[program] // program, for the streams' readers
	events *events
	input  *input
	ctx    context.Context // of the processes
	stop   context.CancelCauseFunc
	busy   context.Context    // while processes run
	idle   context.CancelFunc // ends busy
	free   chan struct{}      // closed when nobody will ask for its events any more
	once   sync.Once          // closes free
	gone   chan struct{}      // closed when nothing is left

	mu      sync.Mutex // guards the fields below, and the files in the folder
	folder  string     // "" before it is made
	closed  bool       // the folder is gone, or was never made and will not be
	files   int        // staged
	bytes   int64      // of them
	grave   *undertaker
	running map[place]*running
	over    uint64 // number of the event Over; 0: not yet
}

func (k *Keeper) newBooking(who Asker, ask reserve.Ask) *booking {
	b := &booking{
		k: k, key: ask.Key, who: who, ask: ask, events: newEvents(), input: newInput(),
		free: make(chan struct{}), gone: make(chan struct{}), running: map[place]*running{},
	}
	b.busy, b.idle = context.WithCancel(context.Background())
	b.ctx, b.stop = context.WithCancelCause(context.Background())
	return b
}

// errKilled is why processes are ended; its text is for people.
type errKilled string

func (e errKilled) Error() string { return string(e) }

// kill ends the processes. Their last words are still said, but nobody is waited for
// who does not listen.
func (b *booking) kill(why string) {
	b.stop(errKilled(why))
	b.input.close()
	time.AfterFunc(lastWords, b.events.silence)
}

// lastWords is how long the submitter of a reservation that was ended may take to hear
// what there is to say.
const lastWords = 3 * time.Second

// release says that nobody will ask for the events any more, so that all can go when
// the processes have ended.
func (b *booking) release() {
	b.once.Do(func() {
		b.events.silence()
		close(b.free)
	})
}

// finish removes what is left of a booking whose reservation is over. Serve's goroutine
// calls it.
func (b *booking) finish() {
	if b.ending {
		return
	}
	b.ending = true
	b.idle()
	b.release()
	b.k.work.Go(func() {
		b.remove()
		b.k.do(func(time.Time) {
			delete(b.k.bookings, b.key)
			close(b.gone)
		})
	})
}

// errOver says that a reservation has ended while something was done for it.
var errOver = errors.New("the reservation has ended")

// home returns the job's folder, made when first asked for. mu is held.
func (b *booking) home() (string, error) {
	if b.closed {
		return "", errOver
	}
	if b.folder != "" {
		return b.folder, nil
	}
	if _, err := b.k.openStore(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(b.k.jobs(), b.ask.Job.Name()+"-")
	if err != nil {
		return "", err
	}
	b.folder = dir
	if b.grave, err = dig(dir); err != nil {
		b.k.log.Warn("nobody will clean up if this helper is killed", "folder", dir, "error", err)
	}
	return dir, nil
}

// remove removes the folder.
func (b *booking) remove() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.folder == "" {
		return
	}
	if err := removeAll(b.folder); err != nil {
		b.k.log.Warn("files of a job stay", "folder", b.folder, "error", err)
	}
	b.grave.done()
}

// removeAll removes a folder, also where a job took its own rights away.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	openUp(dir)
	return os.RemoveAll(dir)
}
