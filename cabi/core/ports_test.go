package core

import (
	"context"
	"net"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// What cannot be used has the error class of what it is. This process has no helper, so it has no ports and no names of its own.
func TestPortErrors(t *testing.T) {
	joined()
	var made, inter uintptr
	name, none := cText("isthmus-port:x"), cText("")
	text := address(new([maxPortName]byte))
	check(t, "ClosePort of nobody's", ClosePort(name), errPort)
	check(t, "ClosePort at address 0", ClosePort(0), errPort)
	check(t, "OpenPort with no info", OpenPort(0x139, text), errInfo)
	check(t, "OpenPort without a helper", OpenPort(infoNull, text), errOther)
	check(t, "PublishName of no port", PublishName(cText("service"), infoNull, none), errPort)
	check(t, "PublishName without a name", PublishName(0, infoNull, name), errName)
	check(t, "LookupName with no info", LookupName(cText("service"), 0x139, text), errInfo)
	check(t, "LookupName without a helper", LookupName(cText("service"), infoNull, text), errOther)
	check(t, "UnpublishName without a helper", UnpublishName(cText("service"), infoNull, name), errOther)
	check(t, "CommAccept at nobody's", CommAccept(name, infoNull, 0, commWorld, address(&made)), errPort)
	check(t, "CommConnect to none", CommConnect(none, infoNull, 0, commWorld, address(&made)), errPort)
	check(t, "CommConnect to a port at address 0", CommConnect(0, infoNull, 0, commWorld, address(&made)), errPort)
	check(t, "CommConnect with root 1", CommConnect(name, infoNull, 1, commWorld, address(&made)), errRank)
	check(t, "CommSetErrhandler", CommSetErrhandler(commSelf, errorsReturn), success)
	defer CommSetErrhandler(commSelf, errorsAreFatal)
	check(t, "CommJoin of no descriptor", CommJoin(-1, address(&inter)), errArg)
}

// board is the connector of a process alone, which knows names.
type board struct {
	ports  map[string]string
	closed chan struct{}
}

func (b *board) Dial(context.Context, overlay.ProcessName, overlay.Ways) (overlay.Carrier, error) {
	return overlay.Carrier{}, overlay.ErrUnreachable
}

func (b *board) Accept(ctx context.Context) (overlay.Carrier, error) {
	select {
	case <-b.closed:
	case <-ctx.Done():
	}
	return overlay.Carrier{}, net.ErrClosed
}

func (b *board) Close() error {
	close(b.closed)
	return nil
}

func (b *board) Publish(_ context.Context, name, port string) error {
	if name == "taken" {
		return overlay.ErrNameTaken
	}
	b.ports[name] = port
	return nil
}

func (b *board) Unpublish(_ context.Context, name string) error {
	if b.ports[name] == "" {
		return overlay.ErrUnknownName
	}
	delete(b.ports, name)
	return nil
}

func (b *board) LookupName(_ context.Context, name string, _ bool) (string, error) {
	if b.ports[name] == "" {
		return "", overlay.ErrUnknownName
	}
	return b.ports[name], nil
}

// another returns a world of this process alone, with a board, and its key.
func another(t *testing.T) (*mpilib.World, jobkey.Key) {
	t.Helper()
	joined()
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	w, err := mpilib.Init(t.Context(), mpilib.WithConnector(&board{map[string]string{}, make(chan struct{})}, key, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Finalize(context.Background()) })
	return w, key
}

// Processes have other numbers in the world of a connection: its groups do not mix with those of the job, but make communicators there.
func TestGroupsOfConnections(t *testing.T) {
	w, _ := another(t)
	var other, theirs, ours, made uintptr
	var result int32
	giveComm(w.Comm(), returnedErrors, nil, address(&other))
	check(t, "CommGroup", CommGroup(other, address(&theirs)), success)
	check(t, "CommGroup", CommGroup(commWorld, address(&ours)), success)
	check(t, "GroupCompare", GroupCompare(theirs, ours, address(&result)), errGroup)
	check(t, "GroupUnion", GroupUnion(ours, theirs, address(&made)), errGroup)
	check(t, "GroupCompare with none", GroupCompare(groupEmpty, theirs, address(&result)), success)
	check(t, "CommCreate", CommCreate(commWorld, theirs, address(&made)), errGroup)
	check(t, "CommCreateGroup", CommCreateGroup(other, ours, 0, address(&made)), errGroup)
	if check(t, "CommCompare", CommCompare(other, commWorld, address(&result)), success); result != unequal {
		t.Errorf("the communicators compare as %d", result)
	}
	check(t, "CommCreateFromGroup", CommCreateFromGroup(theirs, cText("t"), infoNull, errorsReturn, address(&made)), success)
	c, err := commOf(made)
	if err != nil || c.World() != w {
		t.Fatalf("the communicator is of another world: %v", err)
	}
	check(t, "CommFree", CommFree(address(&made)), success)
	comms.Remove(other)
}

// A name gives its port, until it is withdrawn.
func TestNames(t *testing.T) {
	w, key := another(t)
	defer func(w *mpilib.World) { world = w }(world)
	world = w
	name, port, out := cText("service"), "isthmus-port:"+key.String(), new([maxPortName]byte)
	check(t, "LookupName of none", LookupName(name, infoNull, address(out)), errName)
	check(t, "PublishName", PublishName(name, infoNull, cText(port)), success)
	check(t, "PublishName of another's", PublishName(cText("taken"), infoNull, cText(port)), errService)
	check(t, "LookupName", LookupName(name, infoNull, address(out)), success)
	if got := string(out[:len(port)+1]); got != port+"\x00" {
		t.Errorf("the port is %q, want %q", got, port)
	}
	check(t, "UnpublishName", UnpublishName(name, infoNull, cText(port)), success)
	check(t, "UnpublishName again", UnpublishName(name, infoNull, cText(port)), errService)
}

func TestCommDisconnect(t *testing.T) {
	joined()
	var c, all uintptr = 0, commWorld
	check(t, "CommDup", CommDup(commWorld, address(&c)), success)
	old := c
	if check(t, "CommDisconnect", CommDisconnect(address(&c)), success); c != commNull {
		t.Errorf("the communicator is %#x", c)
	}
	check(t, "Barrier", Barrier(old), errComm)
	check(t, "CommDisconnect of MPI_COMM_WORLD", CommDisconnect(address(&all)), errComm)
}
