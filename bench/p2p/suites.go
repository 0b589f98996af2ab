package p2p

import "slices"

const (
	kib = 1 << 10
	mib = 1 << 20
)

// figuresOf returns figures of one kind.
func figuresOf(k kind, sizes ...int) (all []figure) {
	for _, size := range sizes {
		all = append(all, figure{k, size})
	}
	return all
}

// pairFigures are the figures of two ranks.
var pairFigures = slices.Concat(
	figuresOf(halfRoundTrip, 0, 1, 8, 64, kib, 8*kib, 64*kib, 256*kib, mib, 4*mib),
	figuresOf(bandwidth, 16, 64, kib, 8*kib, 64*kib, 256*kib, mib, 4*mib),
	figuresOf(messageRate, 16),
)

// messages is "bench p2p": the messages of programs in Go.
var messages = suite{name: "p2p", subject: nameOurs, scenarios: []scenario{
	{name: "two-nodes", ranks: 2, apart: true, figures: pairFigures, goals: []goal{
		{halfRoundTrip, 64 * kib, 64 * kib, theBetter, 0.5},
		{halfRoundTrip, 0, most, theBetter, 0.9},
		{bandwidth, 64 * kib, 64 * kib, theBetter, 1.4},
		{bandwidth, 0, most, theBetter, 1},
		{messageRate, 0, most, theBetter, 5},
	}},
	{name: "same-node", ranks: 2, figures: pairFigures, goals: []goal{
		{halfRoundTrip, 1, 1, theBetter, 1},
		{halfRoundTrip, 64 * kib, most, theBetter, 0.5},
		{bandwidth, 0, most, theBetter, 1},
	}},
	// Open MPI has a setting for ranks that share a processor.
	{name: "oversubscribed", ranks: 4, oneCPU: true, against: nameOpenMPI, figures: []figure{{ringHop, 1}, {barrier, 0}}, goals: []goal{
		{ringHop, 0, most, nameOpenMPI, 1},
		{barrier, 0, most, nameOpenMPI, 1},
	}},
}}

// programs is "bench abi": programs in C, compiled for each library from one source. A few percent between C and Go are
// what a call costs that enters Go.
var programs = suite{name: "abi", subject: nameC, scenarios: []scenario{
	{name: "two-nodes", ranks: 2, apart: true, others: append(PeerNames(), nameOurs), figures: pairFigures, goals: []goal{
		{halfRoundTrip, 0, most, nameOurs, 1.03},
		{bandwidth, 0, most, nameOurs, 0.97},
		{messageRate, 0, most, nameOurs, 0.97},
	}},
	{name: "same-node", ranks: 2, figures: append(pairFigures[1:len(pairFigures):len(pairFigures)], figure{afterComputing, 1}), goals: []goal{
		{halfRoundTrip, 1, 1, theBetter, 0.8},
		{halfRoundTrip, kib, most, theBetter, 1},
		{messageRate, 0, most, theBetter, 0.9},
		{messageRate, 0, most, nothing, 4},
		{afterComputing, 0, most, theBetter, 2},
	}},
	// MPICH takes tens of milliseconds to hop between two threads that wait.
	{name: "two-threads", ranks: 1, mode: modeThreads, others: []string{nameOpenMPI}, against: nameOpenMPI, figures: []figure{{threadHop, 1}}, goals: []goal{
		{threadHop, 0, most, nameOpenMPI, 1},
	}},
	{name: "oversubscribed", ranks: 4, oneCPU: true, against: nameOpenMPI, figures: []figure{{ringHop, 1}}, goals: []goal{
		{ringHop, 0, most, nameOpenMPI, 1},
	}},
	{name: "singleton", ranks: 1, mode: modeSingleton, figures: []figure{{initTime, 0}, {initMemory, 0}}, goals: []goal{
		{initTime, 0, most, nothing, 20},
		{initMemory, 0, most, nothing, 20},
	}},
}}
