package wire

import (
	"encoding/binary"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// LocalPublish asks the helper to give a name a text by which processes of other jobs find this
// one. The helper answers with LocalNamed with an empty text, or LocalFailed.
type LocalPublish struct {
	Request uint32 // chosen by the process, unique among its open requests of all kinds
	Again   bool   // an earlier helper has published it already
	Name    string // at most overlay.MaxServiceName bytes
	Port    string // at most overlay.MaxPort bytes
}

// Type implements Frame.
func (*LocalPublish) Type() Type { return TypeLocalPublish }

func (f *LocalPublish) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Request)
	b = append(b, boolByte(f.Again))
	b = appendStr8(b, f.Name)
	return appendText(b, f.Port)
}

func (f *LocalPublish) decodeBody(r *reader) {
	f.Request = r.u32()
	f.Again = r.bool()
	f.Name = r.service()
	f.Port = r.text()
	if r.err == nil {
		r.err = overlay.CheckPort(f.Port)
	}
}

// LocalUnpublish withdraws a LocalPublish. It is answered in the same way.
type LocalUnpublish struct {
	Request uint32
	Name    string
}

// Type implements Frame.
func (*LocalUnpublish) Type() Type { return TypeLocalUnpublish }

func (f *LocalUnpublish) appendBody(b []byte) []byte {
	return appendStr8(binary.BigEndian.AppendUint32(b, f.Request), f.Name)
}

func (f *LocalUnpublish) decodeBody(r *reader) {
	f.Request = r.u32()
	f.Name = r.service()
}

// LocalLookup requests the text of a name that a process of any job has published. The helper
// answers with LocalNamed or LocalFailed, within Budget; LocalCancel cancels it.
type LocalLookup struct {
	Request uint32
	Budget  time.Duration // how long to wait for the name; 0: not at all. Whole milliseconds on the wire, rounded up
	Name    string
}

// Type implements Frame.
func (*LocalLookup) Type() Type { return TypeLocalLookup }

func (f *LocalLookup) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Request)
	ms := (f.Budget + time.Millisecond - 1) / time.Millisecond
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(ms, 0), 1<<32-1)))
	return appendStr8(b, f.Name)
}

func (f *LocalLookup) decodeBody(r *reader) {
	f.Request = r.u32()
	f.Budget = time.Duration(r.u32()) * time.Millisecond
	f.Name = r.service()
}

// LocalNamed answers LocalLookup with the name's text, and LocalPublish and LocalUnpublish with an
// empty one.
type LocalNamed struct {
	Request uint32
	Port    string
}

// Type implements Frame.
func (*LocalNamed) Type() Type { return TypeLocalNamed }

func (f *LocalNamed) appendBody(b []byte) []byte {
	return appendText(binary.BigEndian.AppendUint32(b, f.Request), f.Port)
}

func (f *LocalNamed) decodeBody(r *reader) {
	f.Request = r.u32()
	f.Port = r.text()
}

// service reads a published name.
func (r *reader) service() string {
	name := r.str8()
	if r.err == nil {
		r.err = overlay.CheckServiceName(name)
	}
	return name
}
