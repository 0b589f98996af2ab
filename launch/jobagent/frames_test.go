package jobagent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A message is received as it was sent, and no prefix is accepted.
func TestFrames(t *testing.T) {
	sent := &nodepb.ToAgent{Say: &nodepb.ToAgent_Open{Open: &nodepb.Open{Parent: []byte("/jobs"), Name: []byte("job"), OrphanMs: 30000, Have: 7}}}
	var b bytes.Buffer
	if err := writeFrame(&b, sent); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for n := range len(whole) {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if err := readFrame(bytes.NewReader(whole[:n]), &nodepb.ToAgent{}); !errors.Is(err, want) {
			t.Errorf("of %d bytes the first %d: %v, want %v", len(whole), n, err, want)
		}
	}
	got := &nodepb.ToAgent{}
	if err := readFrame(bytes.NewReader(whole), got); err != nil || !proto.Equal(got, sent) {
		t.Errorf("%v, %v", got, err)
	}
	if err := readFrame(bytes.NewReader([]byte{0xff, 0, 0, 0}), got); err == nil {
		t.Error("a message of 4 GiB is read")
	}
	if err := writeFrame(io.Discard, &nodepb.ToAgent{Say: &nodepb.ToAgent_File{File: &nodepb.StagePart{Data: make([]byte, 5<<20)}}}); err == nil {
		t.Error("a message beyond the bound is sent")
	}
}

// What an agent sends is bounded by its type, before it is read and before it is decoded.
func TestFramesAreBounded(t *testing.T) {
	endless := io.MultiReader(bytes.NewReader([]byte{0, 1, 0, 1}), neverRead{t}) // 64 KiB and a byte
	if err := readFrame(endless, &nodepb.FromAgent{}); err == nil {
		t.Error("65537 bytes of an agent are taken")
	}
	start := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), bytes.Repeat([]byte{0x1a, 0}, 500_000)) // processes
	launch := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), start)
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(launch))), launch...)
	if err := readFrame(bytes.NewReader(b), &nodepb.ToAgent{}); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("half a million empty processes: %v", err)
	}
}

type neverRead struct{ t *testing.T }

func (r neverRead) Read([]byte) (int, error) {
	r.t.Error("the message is read")
	return 0, io.EOF
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0x42, 0})
	f.Add([]byte{0, 0, 0, 9, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &nodepb.ToAgent{}
		if readFrame(bytes.NewReader(b), m) != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, m); err != nil {
			t.Fatal(err)
		}
		if err := readFrame(&again, &nodepb.ToAgent{}); err != nil {
			t.Fatal(err)
		}
	})
}

// A message that cannot be carried is known by its error, at both ends.
func TestMessagesThatCannotBeCarried(t *testing.T) {
	for name, m := range map[string]*nodepb.ToAgent{
		"no text":   {Say: &nodepb.ToAgent_Signal{Signal: &nodepb.Signal{Name: "\xff"}}},
		"too large": {Say: &nodepb.ToAgent_Input{Input: &nodepb.Input{Data: make([]byte, 5<<20)}}},
	} {
		if err := writeFrame(io.Discard, m); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, frame := range map[string]string{"no message": "\x00\x00\x00\x01\xff", "too large": "\xff\xff\xff\xff"} {
		if err := readFrame(strings.NewReader(frame), &nodepb.ToAgent{}); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
