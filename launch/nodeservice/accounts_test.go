package nodeservice

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// What a process of a job asks for, its submitter asks for, over as many nodes as jobs have started each other;
// what could be of an ended job is nobody's.
func TestCallersInJobs(t *testing.T) {
	const account = 1_900_000_001
	there := overlay.NodeID{Site: "there", Name: "n9"}
	alice := Asker{Node: there, User: "alice", UID: 7}
	nested := Asker{Node: there, User: "1900000004", UID: 1_900_000_004, Origins: []string{"alice@far/n1"}}
	deep := Asker{Node: there, User: "x", Origins: slices.Repeat([]string{"alice@far/n1"}, maxOrigins)}
	for _, c := range []struct {
		name   string
		only   bool
		begin  []Asker
		ends   int
		want   string // identity
		refuse string
	}{
		{"no job", false, nil, 0, "1900000001@here/n1", ""},
		{"a job", true, []Asker{alice}, 0, "alice@there/n9 via 1900000001@here/n1", ""},
		{"a job of a job", true, []Asker{nested}, 0, "alice@far/n1 via 1900000004@there/n9 via 1900000001@here/n1", ""},
		{"a job of this node's user", true, []Asker{{Node: here, User: "bob", UID: 8, Here: true}}, 0, "bob@here/n1", ""},
		{"one of two has ended", true, []Asker{alice, alice}, 1, "alice@there/n9 via 1900000001@here/n1", ""},
		{"ended", true, []Asker{alice}, 1, "", "is for jobs only"},
		{"ended, in the account of a user", false, []Asker{alice}, 1, "1900000001@here/n1", ""},
		{"the next one's", true, []Asker{{Node: there, User: "carol"}, alice}, 1, "alice@there/n9 via 1900000001@here/n1", ""},
		{"too many jobs", true, []Asker{deep}, 0, "", "launch it from a node of its submitter's"},
	} {
		var a jobAccounts
		for _, who := range c.begin {
			a.begin(Account{UID: account, Only: c.only}, who)
		}
		for range c.ends {
			a.end(Account{UID: account, Only: c.only})
		}
		who, err := a.caller(here, local.Cred{UID: account, PID: 1})
		switch {
		case c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)):
			t.Errorf("%s: %v; want %q", c.name, err, c.refuse)
		case c.refuse == "" && (err != nil || who.Identity() != c.want || who.Here != (c.ends == len(c.begin))):
			t.Errorf("%s: %+v, %v; want %s", c.name, who, err, c.want)
		}
		if other, err := a.caller(here, local.Cred{UID: 1000}); err != nil || len(other.Origins) > 0 || !other.Here {
			t.Errorf("%s: another account is %+v, %v", c.name, other, err)
		}
	}
}

// What jobs in the account of the helper itself ask for, its user asks for, whoever submitted them.
func TestCallersInTheHelpersAccount(t *testing.T) {
	var a jobAccounts
	a.begin(Account{}, Asker{Node: overlay.NodeID{Site: "there", Name: "n9"}, User: "alice", UID: 7})
	for _, uid := range []uint32{0, uint32(os.Getuid()), 1_900_000_001} {
		who, err := a.caller(here, local.Cred{UID: uid})
		if want := local.Account(uid) + "@here/n1"; err != nil || who.Identity() != want || !who.Here {
			t.Errorf("account %d: %+v, %v; want %s", uid, who, err, want)
		}
	}
	a.end(Account{})
	if who, err := a.caller(here, local.Cred{}); err != nil || !who.Here {
		t.Errorf("after the job: %+v, %v", who, err)
	}
}

// The next node learns for whom a node asks, as it was told, and refuses what no helper says.
func TestCallersAreToldOn(t *testing.T) {
	who := Asker{Node: here, UID: 5, User: "games", Origins: []string{"alice@far/n1", "7@there/n9"}}
	for _, want := range []Asker{who, {Node: here, UID: 5, User: "games", Origins: []string{}}} {
		md, _ := metadata.FromOutgoingContext(onBehalf(t.Context(), want))
		if got, err := askerOf(here, md.Get(metaUser)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	for _, users := range [][]string{
		{"5 games", "alice"}, {"5 games", "alice@far"}, {"5 games", "alice@far/n1 via bob@far/n1"}, {"5 games", "a b@far/n1"}, {"5 games", ""},
		{"5 games", "alice@far/n1/n2"}, append([]string{"5 games"}, slices.Repeat([]string{"alice@far/n1"}, maxOrigins+1)...),
	} {
		if who, err := askerOf(here, users); err == nil {
			t.Errorf("%q: %+v", users, who)
		}
	}
}

// A process of a job books a node as the job's submitter: at its own node's socket as anywhere, and with no rights of its node's
// users.
func TestBookingFromWithinAJob(t *testing.T) {
	running := &impostor{account: Account{UID: uint32(os.Getuid()), Only: true}}
	h := newHost(t, func(o *Options) {
		o.Starter = running
		o.Policy.Allow = []reserve.Rule{{Site: here.Site}, {Identity: "alice@there/*"}}
	})
	helper := filepath.Join(t.TempDir(), "helper")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: helper + DoorSuffix, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	g := &Server{callers: newCallers(9, 9), NodeService: h.NodeService, settings: Settings{Options: h.opts}}
	g.meter = g.newLocalMeter()
	g.local = g.newLocalServer()
	nodepb.RegisterNodeServiceServer(control.Counted(g.local), &service{node: h.NodeService, caller: localCaller})
	served := make(chan struct{})
	go func() {
		g.local.Serve(&localListener{ln, g})
		close(served)
	}()
	t.Cleanup(func() { g.local.Stop(); <-served })
	asks := func() (*nodepb.NOK, error) {
		t.Helper()
		conn, err := Connect(helper)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := nodepb.NewNodeServiceClient(conn).Converse(ctx)
		if err != nil {
			t.Fatal(err)
		}
		key, _ := jobkey.New("job")
		id := make([]byte, 16)
		copy(id, key.ID())
		stream.Send(&nodepb.ToNode{Say: &nodepb.ToNode_Ask{Ask: &nodepb.Ask{Key: id, Job: string(key.ID()), Processes: 1}}})
		m, err := stream.Recv()
		return m.GetNok(), control.FromStatus(err)
	}
	if nok, err := asks(); nok != nil || err != nil {
		t.Fatalf("outside of jobs: %v, %v", nok, err)
	}
	running.folder = filepath.Join(h.jobs(), "job-1")
	c := h.talk()
	c.who.User = "alice"
	if m := c.booked().start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"})}); m.GetStarted() == nil {
		t.Fatalf("the node says %v", m)
	}
	if nok, err := asks(); nok != nil || err != nil {
		t.Errorf("within alice's job: %v, %v", nok, err)
	}
	h.SetPolicy(reserve.Policy{Jobs: 4, Processes: 4, Allow: []reserve.Rule{{Site: here.Site}}})
	if nok, err := asks(); nok.GetReason() != string(reserve.Denied) || !strings.Contains(string(nok.GetText()), "alice@there/n9") || !strings.Contains(string(nok.GetText()), "{site: there} in offer.allow") {
		t.Errorf("within the job of one whom nothing allows: %v, %v", nok, err)
	}
	running.Kill("")
	c.hang()
	testkit.Until(h.t, "the job's end", func() bool {
		_, err := asks()
		return errors.Is(err, overlay.ErrForbidden) && strings.Contains(err.Error(), "is for jobs only")
	})
}
