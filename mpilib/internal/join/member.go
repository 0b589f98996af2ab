package join

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Reacher reaches the processes of jobs, as a process of the place does.
type Reacher struct {
	Place *Place
	Reach func(overlay.ProcessName) (overlay.Connector, error) // instead of what Place says; nil: as it says
	Here  func() overlay.NodeID                                // where this process is, where Reach is used
}

// Opened is what reaches the processes of a job.
type Opened struct {
	Connector overlay.Connector
	Here      overlay.NodeID     // where this process is, if anybody knows
	Life      overlay.Generation // of this process
}

// Open returns what reaches the other processes of a job, which this process is rank
// of, its own or another that it joins: the helper, or sockets in a directory. It has
// work wait for what it starts, which ends with life. dead, if not nil, is told of the
// job's processes that died with their node.
func (r Reacher) Open(ctx, life context.Context, work *sync.WaitGroup, rank uint32, key jobkey.Key, dead func([]uint32, string)) (Opened, error) {
	p := r.Place
	self := overlay.ProcessName{Job: key.ID(), Rank: rank}
	switch {
	case r.Reach != nil:
		c, err := r.Reach(self)
		return Opened{c, r.Here(), startLife()}, err
	case p.Dir != "":
		d, err := local.Listen(p.Dir, self)
		if err != nil {
			return Opened{}, err // not a nil *Directory in a Connector
		}
		return Opened{Connector: d, Life: startLife()}, nil
	case p.Helper == "":
		return Opened{}, fmt.Errorf("%w: this process has no helper; start the job with `isthmus run --helper SOCKET`, or set %s", mpi.ErrEnv, EnvHelper)
	}
	var shown []byte
	if key == p.Key {
		shown = p.Grant // which is for this job
	}
	client := local.NewClient(local.ClientConfig{Socket: p.Helper, Process: self, Auth: key.Auth(), Grant: shown, Dead: dead})
	work.Go(func() { client.Serve(life) }) // what ends it, Ready and Dial report
	here, err := client.Ready(ctx)
	if err != nil {
		client.Close()
		return Opened{}, err
	}
	return Opened{client, here, client.Generation()}, nil
}

// startLife is the generation of a process that no helper gives one.
func startLife() overlay.Generation { return overlay.NewGeneration(time.Now(), 0) }

// Job is what a process joins.
type Job struct {
	Key      jobkey.Key
	Rank     uint32
	Size     uint32
	Carriers int               // of each link; 0: its own choice
	Given    overlay.Connector // instead of what a Reacher opens; nil: none is
	Timeout  time.Duration     // of opening
	Log      *slog.Logger
	Up       func(*link.Link)       // takes links
	Dead     func([]uint32, string) // is told of processes that died with their node; may be nil
}

// Member is a process's membership of a job. The zero Member is of none, and has nothing to
// leave.
type Member struct {
	Connector overlay.Connector
	Mesh      *link.Mesh
	Here      overlay.NodeID // where this process is, if a Reacher opened the Connector and anybody knows

	leave   func()             // ends the mesh, and waits
	stop    context.CancelFunc // ends what serving waits for
	serving sync.WaitGroup
	meshErr error // of Mesh.Serve; read after leave
}

// Join starts what reaches the other processes of a job and is reached by them. Leave
// when done. Up may be called before it returns, when Mesh is set.
func (m *Member) Join(ctx context.Context, r Reacher, j Job) error {
	serving, stop := context.WithCancel(context.Background())
	m.stop = stop
	o := Opened{Connector: j.Given, Life: startLife()}
	if j.Given == nil {
		var err error
		bounded, cancel := context.WithTimeout(ctx, j.Timeout)
		defer cancel()
		if o, err = r.Open(bounded, serving, &m.serving, j.Rank, j.Key, j.Dead); err != nil {
			stop()
			m.serving.Wait()
			return err
		}
	}
	m.Connector, m.Here = o.Connector, o.Here
	self := link.NewIdentity(j.Key, j.Rank, o.Life)
	m.Mesh = link.NewMesh(link.Config{Self: self, Size: j.Size, Connector: m.Connector, Carriers: j.Carriers, Log: j.Log, Up: j.Up})
	m.leave = serveMesh(serving, m.Mesh, &m.meshErr)
	return nil
}

// serveMesh serves a mesh until life ends or leave is called, which waits. To be
// called before the connector is closed: the mesh's last words go through it.
func serveMesh(life context.Context, m *link.Mesh, err *error) (leave func()) {
	ctx, cancel := context.WithCancel(life)
	var serving sync.WaitGroup
	serving.Go(func() { *err = m.Serve(ctx) })
	return func() {
		cancel()
		serving.Wait()
	}
}

// Leave ends the membership. It returns when nothing is left of it: the errors of closing
// the connector, and of the mesh.
func (m *Member) Leave() (closing, mesh error) {
	if m.leave == nil {
		return nil, nil
	}
	m.leave()
	closing = m.Connector.Close()
	m.stop()
	m.serving.Wait()
	return closing, m.meshErr
}
