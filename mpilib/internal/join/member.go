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

// Reacher reaches the processes of jobs from the location of this process.
type Reacher struct {
	Place *Place
	Reach func(overlay.ProcessName) (overlay.Connector, error) // instead of what Place names; nil for that
	Here  func() overlay.NodeID                                // location of this process, if Reach is used
}

// Opened is an open connector to the processes of a job.
type Opened struct {
	Connector overlay.Connector
	Here      overlay.NodeID     // location of this process, if known
	Life      overlay.Generation // of this process
}

// Open returns the connector to the other processes of a job, of which this process is a rank, its
// own job or another that it joins: the helper, or sockets in a directory. What it starts is part
// of work and ends with life. dead, if not nil, is called for the job's processes that died with
// their node.
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
		shown = p.Grant // which is for this job only
	}
	client := local.NewClient(local.ClientConfig{Socket: p.Helper, Process: self, Auth: key.Auth(), Grant: shown, Dead: dead})
	work.Go(func() { client.Serve(life) }) // Ready and Dial report what ends it
	here, err := client.Ready(ctx)
	if err != nil {
		client.Close()
		return Opened{}, err
	}
	return Opened{client, here, client.Generation()}, nil
}

// startLife is the generation of a process that gets none from a helper.
func startLife() overlay.Generation { return overlay.NewGeneration(time.Now(), 0) }

// Job describes a job to join.
type Job struct {
	Key      jobkey.Key
	Rank     uint32
	Size     uint32
	Carriers int               // of each link; 0: the link chooses
	Given    overlay.Connector // instead of what a Reacher opens; nil for that
	Timeout  time.Duration     // of opening
	Log      *slog.Logger
	Up       func(*link.Link)       // accepts links
	Dead     func([]uint32, string) // called for processes that died with their node; may be nil
}

// Member is a process's membership of a job. The zero Member has no job and nothing to leave.
type Member struct {
	Connector overlay.Connector
	Mesh      *link.Mesh
	Here      overlay.NodeID // location of this process, if a Reacher opened the Connector and it is known

	leave   func()             // ends the mesh and waits for it
	stop    context.CancelFunc // ends what the mesh waits for
	serving sync.WaitGroup
	meshErr error // of Mesh.Serve; read after leave
}

// Join opens the connector to the other processes of a job and accepts their links. The caller
// calls Leave. Up may be called before Join returns, once Mesh is set.
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

// serveMesh serves a mesh until life ends or leave is called, which waits for it. leave must be
// called before the connector is closed: the mesh's last messages go through it.
func serveMesh(life context.Context, m *link.Mesh, err *error) (leave func()) {
	ctx, cancel := context.WithCancel(life)
	var serving sync.WaitGroup
	serving.Go(func() { *err = m.Serve(ctx) })
	return func() {
		cancel()
		serving.Wait()
	}
}

// Leave ends the membership. It returns when everything has ended: the errors of closing the
// connector, and of the mesh.
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
