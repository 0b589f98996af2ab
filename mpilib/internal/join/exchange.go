package join

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/pmi"
)

// Exchange is where the processes of another launcher than `isthmus run` leave texts for each other before they are connected. The zero
// Exchange is none.
type Exchange struct {
	fd     int    // of a process manager with PMI-1; 0: none
	pmix   bool   // there is a PMIx server, which Place.OpenPMIx reaches
	folder string // of all processes if they are on one host; the launcher removes what it is in
}

// exchangeOf returns what a launcher has for its processes. One with PMIx serves them with a library of its own; on one host its folder
// does as well. Where nothing says how many hosts there are, programs without the library take the folder.
func exchangeOf(launcher string, lookup func(string) (string, bool)) (x Exchange) {
	if _, share := lookup(EnvFirst); share { // the others have another launcher
		return x
	}
	get := func(name string) string { text, _ := lookup(name); return text }
	switch {
	case launcher == "PMI":
		x.fd, _ = strconv.Atoi(get(pmi.EnvFD))
	case launcher == "PMIx":
		here, all := get("OMPI_COMM_WORLD_LOCAL_SIZE"), get("OMPI_COMM_WORLD_SIZE")
		temp, nodes := get("PMIX_SERVER_TMPDIR"), get("SLURM_STEP_NUM_NODES")
		x.pmix = here == "" || here != all || temp == ""
		if several := here != "" && here != all || here == "" && nodes != "" && nodes != "1"; !several && temp != "" {
			job := sha256.Sum256([]byte(get("PMIX_NAMESPACE")))
			x.folder = filepath.Join(temp, fmt.Sprintf("isthmus-%x", job[:4])) // short, as paths of sockets must be
		}
	}
	return x
}

// A Manager is a connection to the process manager of another launcher. Only Abort may be called during another call. The launcher ends the job
// if the process ends without Close.
type Manager interface {
	Put(ctx context.Context, name, text string) error
	Get(ctx context.Context, name string, rank int) (string, error) // what that rank has put before the last Barrier
	Barrier(ctx context.Context) error
	Abort(status int) error // has the launcher end the job
	Close(ctx context.Context) error
}

// name begins the job's name.
func (x Exchange) name() string {
	if x.pmix {
		return "pmix"
	}
	return "pmi"
}

// Complete gets the job's key and the way to the other processes by p's Exchange, if it has one: rank 0 makes the key and, if all are on one host and there is
// no helper, a folder for their sockets. All processes call it; it waits for the others as long as timeout. If it fails it leaves no folder, and the process
// manager waits for this process's end.
func (p *Place) Complete(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	switch x := p.Exchange; {
	case x.fd > 0:
		err = p.byPMI(ctx)
	case x.pmix && (x.folder == "" || p.OpenPMIx != nil):
		err = p.byPMIx(ctx)
	case x.folder != "":
		err = p.byFolder(ctx)
	default:
		return nil
	}
	if err != nil {
		p.removeFolder()
		return fmt.Errorf("mpilib: Init: rank %d of %d: to get the job's key from rank 0: %w", p.Rank, p.Size, err)
	}
	return nil
}

func (p *Place) byPMI(ctx context.Context) error {
	c, err := pmi.Dial(ctx, p.Exchange.fd)
	if err != nil { // not a nil *Client in a Manager
		return fmt.Errorf("%w; a program that a rank starts is a world of its own with %s=%s", err, EnvLauncher, noLauncher)
	}
	return p.byManager(ctx, c)
}

// byPMIx takes the folder, if there is one, where the client library cannot be had.
func (p *Place) byPMIx(ctx context.Context) error {
	if p.OpenPMIx == nil {
		return fmt.Errorf("%w: the processes are on several hosts, and this program in Go has no client of PMIx: start it with Hydra or srun --mpi=pmi2, or export %s and %s to every rank",
			mpi.ErrEnv, jobkey.EnvKey, EnvHelper)
	}
	m, err := p.OpenPMIx(ctx)
	switch {
	case err == nil:
		return p.byManager(ctx, m)
	case p.Exchange.folder == "":
		return err
	}
	if without := p.byFolder(ctx); without != nil {
		return errors.Join(err, without)
	}
	return nil
}

// Names of texts that the processes leave with the process manager.
const (
	textHost = "isthmus-host-" // with the rank: the host it runs on
	textKey  = "isthmus-key"
	textDir  = "isthmus-dir" // noDir if there is none
)

const noDir = "-"

func (p *Place) byManager(ctx context.Context, m Manager) (err error) {
	p.manager = m
	if err := errors.Join(m.Put(ctx, textHost+strconv.Itoa(p.Rank), thisHost()), m.Barrier(ctx)); err != nil {
		return err
	}
	if p.Rank == 0 {
		err = p.leaveKey(ctx, m)
	}
	if err := errors.Join(err, m.Barrier(ctx)); err != nil { // which the others are in
		return err
	}
	if p.Rank > 0 {
		err = p.takeKey(ctx, m)
	}
	if err == nil && p.Helper == "" && p.Dir == "" {
		err = p.findHelper()
	}
	return err
}

// leaveKey makes the job's key for all, and a folder if they are on one host.
func (p *Place) leaveKey(ctx context.Context, m Manager) (err error) {
	if p.Key, err = jobkey.New(p.Exchange.name()); err != nil {
		return err
	}
	together := p.Helper == ""
	for rank := 1; together && rank < p.Size; rank++ {
		host, err := m.Get(ctx, textHost+strconv.Itoa(rank), rank)
		if err != nil {
			return err
		}
		together = host == thisHost()
	}
	dir := noDir
	if together {
		if p.Dir, err = newFolder(); err != nil {
			return err
		}
		dir = p.Dir
	}
	return errors.Join(m.Put(ctx, textKey, p.Key.String()), m.Put(ctx, textDir, dir))
}

// newFolder makes a folder for the sockets of this host's processes.
func newFolder() (string, error) {
	dir, err := os.MkdirTemp("", "isthmus-")
	if err == nil && !local.HasRoom(dir) {
		os.Remove(dir)
		return os.MkdirTemp("/tmp", "isthmus-")
	}
	return dir, err
}

func (p *Place) takeKey(ctx context.Context, m Manager) error {
	key, err := m.Get(ctx, textKey, 0)
	if err != nil {
		return err
	}
	if p.Key, err = jobkey.Parse(key); err != nil {
		return err
	}
	dir, err := m.Get(ctx, textDir, 0)
	if p.Helper == "" && dir != noDir {
		p.Dir = dir
	}
	return err
}

// findHelper is for processes of several hosts, which reach each other by helpers only.
func (p *Place) findHelper() error {
	if _, err := os.Stat(local.DefaultSocket); err != nil {
		return fmt.Errorf("%w: the processes are on several hosts, and this one has no helper (%w): start isthmus-helper on each, or name its socket in %s", mpi.ErrEnv, err, EnvHelper)
	}
	p.Helper = local.DefaultSocket
	return nil
}

// thisHost distinguishes hosts that have the same name.
func thisHost() string {
	name, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.ReplaceAll(name, " ", "_") + "/" + strings.TrimSpace(string(boot))
}

// keyFile is where rank 0 leaves the key in an Exchange's folder, and after a space the folder of sockets, which is another one if that path
// would be too long.
const keyFile = "key"

func (p *Place) byFolder(ctx context.Context) error {
	if err := local.MakeFolder(p.Exchange.folder); err != nil {
		return err
	}
	name := filepath.Join(p.Exchange.folder, keyFile)
	if p.Rank == 0 {
		return p.writeKey(name)
	}
	for again := time.NewTicker(5 * time.Millisecond); ; {
		if text, err := os.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
			again.Stop()
			return errors.Join(err, p.readKey(string(text)))
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return fmt.Errorf("%w: rank 0 has not left it in %s; it must be a program of Isthmus, too", context.Cause(ctx), name)
		}
	}
}

func (p *Place) writeKey(name string) (err error) {
	if p.Key, err = jobkey.New("pmix"); err != nil {
		return err
	}
	dir := p.Exchange.folder
	switch {
	case p.Helper != "":
		dir = noDir
	case !local.HasRoom(dir):
		if dir, err = newFolder(); err != nil {
			return err
		}
	}
	if dir != noDir {
		p.Dir = dir
	}
	if err := os.WriteFile(name+".new", []byte(p.Key.String()+" "+dir), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (p *Place) readKey(text string) (err error) {
	key, dir, _ := strings.Cut(text, " ")
	if p.Helper == "" && dir != noDir {
		p.Dir = dir
	}
	p.Key, err = jobkey.Parse(key)
	return err
}

// Leave removes the folder that Complete made, once the last process has left it, and tells the process manager that this process has left the job.
func (p *Place) Leave(ctx context.Context) error {
	p.removeFolder()
	if p.manager == nil {
		return nil
	}
	return p.manager.Close(ctx)
}

// Abort asks the process manager, if there is one, to end all processes of the job, and returns whether it was asked. One with PMIx that was not needed before
// is opened for that.
func (p *Place) Abort(status int) (asked bool, err error) {
	m := p.manager
	if m == nil && p.Exchange.folder != "" && p.OpenPMIx != nil {
		ctx, cancel := context.WithTimeout(context.Background(), maxAbort)
		defer cancel()
		if m, err = p.OpenPMIx(ctx); err != nil {
			return false, nil // the launcher sees the status of this process
		}
	}
	if m == nil {
		return false, nil
	}
	return true, m.Abort(status)
}

// maxAbort bounds how long a process that fails opens PMIx.
const maxAbort = 5 * time.Second

func (p *Place) removeFolder() {
	if p.Exchange != (Exchange{}) && p.Dir != "" && p.Dir != p.Exchange.folder {
		os.Remove(p.Dir) // refused while there is another's socket
	}
}
