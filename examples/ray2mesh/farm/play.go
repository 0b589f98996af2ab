package farm

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// What passes between a dealer, rank 0 of a communicator, and its clients, the
// others of it:
//
//	client -> dealer  tagResult  no arrivals: "I can take a chunk more"
//	dealer -> client  tagChunk   a chunk to trace, or an empty one: "no more"
//	client -> dealer  tagResult  the arrivals of all rays of one chunk, which
//	                             asks for the next one, too
//
// So a client has at most as many chunks as it has asked for at the beginning, its
// credit: a worker one, as in the program that this one stands for, or what the
// plan says, and a boss two, so that its workers have something to do while the
// next one is on its way. A client leaves when it has been told "no more" as often
// as it has asked.
const (
	tagChunk  = 1
	tagResult = 2

	bossesCredit = 2
)

// dealt is how many chunks a dealer has handed out.
type dealt struct {
	chunks int64 // of any kind
	far    int64 // of them, to clients of other sites
	asks   int64 // far clients' credits: each takes a message to ask and one to end
}

// add adds what was dealt at another time.
func (d *dealt) add(o dealt) {
	d.chunks, d.far, d.asks = d.chunks+o.chunks, d.far+o.far, d.asks+o.asks
}

// dealer is this rank's side of that conversation where it deals.
type dealer struct {
	farm  *farm
	comm  *mpilib.Comm
	queue *workQueue
	buf   []arrival // of the longest result
	left  int64     // credits of clients that have not been told "no more"
	due   int64     // messages that clients will send: requests at the beginning, then results
	dealt dealt
	isFar []bool
}

// newDealer returns the dealer of comm, whose clients are sent as many rays at
// once as size says.
func (f *farm) newDealer(comm *mpilib.Comm, size func(client int) int64) *dealer {
	d := &dealer{farm: f, comm: comm, queue: newWorkQueue(size), isFar: make([]bool, comm.Size())}
	here := f.places[comm.WorldRank(0)].Site
	most := int64(0)
	for client := 1; client < comm.Size(); client++ {
		credit := f.credit
		if f.isBoss(comm, client) {
			credit = bossesCredit
		}
		d.left += credit
		d.due += credit
		if f.places[comm.WorldRank(client)].Site != here {
			d.isFar[client] = true
			d.dealt.asks += credit
		}
		most = max(most, size(client))
	}
	d.buf = make([]arrival, most)
	return d
}

// isBoss says whether a client is one; those of a boss are workers.
func (f *farm) isBoss(comm *mpilib.Comm, client int) bool {
	return comm == f.upper && f.cast.kinds[f.rankOf[comm.WorldRank(client)]] == boss
}

// deal sends chunks from the queue to the clients that wait.
func (d *dealer) deal(ctx context.Context) error {
	for {
		client, c, ok := d.queue.next()
		if !ok {
			return nil
		}
		if err := mpilib.Send(ctx, d.comm, []chunk{c}, client, tagChunk); err != nil {
			return err
		}
		if c.Count == 0 {
			d.left--
			continue
		}
		d.due++
		d.dealt.chunks++
		if d.isFar[client] {
			d.dealt.far++
		}
	}
}

// heard takes in a message of n arrivals, which are in the buffer, and returns
// them. They are overwritten by the next message.
func (d *dealer) heard(ctx context.Context, client, n int) ([]arrival, error) {
	arrivals := d.buf[:n]
	d.due--
	if n > 0 {
		if c := (chunk{arrivals[0].Ray, int64(n)}); !d.queue.answered(client, c) {
			return nil, fmt.Errorf("rank %d answered %+v, which it had not been given", d.comm.WorldRank(client), c)
		}
		if err := d.farm.tracer.processor.Do(ctx, d.farm.handling, func() {}); err != nil {
			return nil, err
		}
		d.farm.handle()
	}
	d.queue.ask(client)
	return arrivals, nil
}

// lead is the master: it deals all rays and keeps all arrivals.
func (f *farm) lead(ctx context.Context) (dealt, error) {
	d := f.newDealer(f.upper, func(client int) int64 {
		if f.isBoss(f.upper, client) {
			return f.bigFor(f.rankOf[f.upper.WorldRank(client)])
		}
		return f.chunk
	})
	for _, c := range f.ledger.missing() {
		d.queue.put(c)
	}
	d.queue.close()
	for d.left > 0 {
		st, err := mpilib.Recv(ctx, d.comm, d.buf, mpilib.AnySource, tagResult)
		if err != nil {
			return d.dealt, err
		}
		n, err := mpilib.GetCount[arrival](st)
		if err != nil {
			return d.dealt, err
		}
		arrivals, err := d.heard(ctx, st.Source, n)
		if err != nil {
			return d.dealt, err
		}
		if err := f.ledger.enter(arrivals); err != nil {
			return d.dealt, err
		}
		if err := d.deal(ctx); err != nil {
			return d.dealt, err
		}
	}
	return d.dealt, nil
}

// bigFor returns how many rays a boss gets at once.
func (f *farm) bigFor(boss int) int64 {
	if f.big > 0 {
		return f.big
	}
	return 2 * f.chunk * f.cast.workersOf(boss)
}

// work is a worker of the dealer of comm.
func (f *farm) work(ctx context.Context, comm *mpilib.Comm) error {
	for range f.credit {
		if err := mpilib.Send(ctx, comm, []arrival{}, 0, tagResult); err != nil {
			return err
		}
	}
	for left := f.credit; left > 0; {
		var c [1]chunk
		if _, err := mpilib.Recv(ctx, comm, c[:], 0, tagChunk); err != nil {
			return err
		}
		if c[0].Count == 0 {
			left--
			continue
		}
		arrivals, err := f.tracer.trace(ctx, c[0])
		if err != nil {
			return err
		}
		f.handle()
		if err := mpilib.Send(ctx, comm, arrivals, 0, tagResult); err != nil {
			return err
		}
	}
	return nil
}
