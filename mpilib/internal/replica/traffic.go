package replica

import "github.com/isthmus-grid/isthmus/wire"

// Traffic counts what a process has sent for ranks with replicas, since it began. Sends are those of the program to
// other ranks; all else is messages to processes. Bytes of Sends and Data are the program's, all others have their envelopes.
type Traffic struct {
	Sends, SendBytes       uint64
	Data, DataBytes        uint64 // messages that carry sends
	Acks, AckBytes         uint64 // acknowledgements
	Controls, ControlBytes uint64 // all other messages between processes of replicated ranks: decisions, questions
	Across, AcrossBytes    uint64 // of Data, Acks and Controls: those to processes with another replica number
}

// CountData counts a message of so many bytes that carries a send; across says that it goes to a process with another
// replica number.
func (t *Traffic) CountData(bytes int, across bool) {
	t.Data++
	t.DataBytes += uint64(bytes)
	t.countAcross(wire.EnvelopeLen+bytes, across)
}

// CountControl counts a message of this package, of so many bytes.
func (t *Traffic) CountControl(kind Kind, bytes int, across bool) {
	n := uint64(wire.EnvelopeLen + bytes)
	if kind == Ack || kind == Have {
		t.Acks++
		t.AckBytes += n
	} else {
		t.Controls++
		t.ControlBytes += n
	}
	t.countAcross(int(n), across)
}

func (t *Traffic) countAcross(bytes int, across bool) {
	if across {
		t.Across++
		t.AcrossBytes += uint64(bytes)
	}
}
