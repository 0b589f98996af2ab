package runmap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// report is what a rank reports of one link: the JSON of an mpilib.LinkInfo. Importing mpilib would
// add the collective algorithms to every installed isthmus.
type report struct {
	Rank        int    `json:"rank"`
	Replica     int    `json:"replica"` // of the rank
	Node        string `json:"node"`    // "site/node"; empty without a helper
	Peer        int    `json:"peer"`
	PeerReplica int    `json:"peer_replica"`
	PeerNode    string `json:"peer_node"` // as Node
	figures
}

// A Process is a replica of a rank; of ranks without replicas, replica 0.
type Process struct{ Rank, Replica int }

func (l *report) from() Process { return Process{l.Rank, l.Replica} }
func (l *report) to() Process   { return Process{l.Peer, l.PeerReplica} }

// compare orders processes: first replicas 0 of all ranks, then replicas 1.
func compare(a, b Process) int {
	return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Rank, b.Rank))
}

// figures has the names that a link's properties have both in a report and in the JSON of a Map.
type figures struct {
	Technique        string  `json:"technique"`
	Via              string  `json:"via"`
	Proxy            string  `json:"proxy"`
	Cipher           string  `json:"cipher"`
	Reason           string  `json:"reason"`
	Carriers         int     `json:"carriers"`
	SetupMS          float64 `json:"setup_ms"`
	RTTMS            float64 `json:"rtt_ms"`
	Bandwidth        float64 `json:"bandwidth,omitempty"` // bytes per second; missing: unknown
	MessagesSent     uint64  `json:"messages_sent"`
	BytesSent        uint64  `json:"bytes_sent"`
	MessagesReceived uint64  `json:"messages_received"`
	BytesReceived    uint64  `json:"bytes_received"`
}

// Map is what the ranks that ran here report of the job.
type Map struct {
	size      int
	first     int       // rank of the first process here
	count     int       // ranks here
	processes []Process // of the job, in order
	links     []report
	mute      []Process          // those here that left no report
	node      map[Process]string // "site/node", if known; empty without a helper
}

// Read reads the reports that ranks first to first+count-1 of a job of size processes left in dir,
// which was their mpilib.EnvReport.
func Read(dir string, first, count, size int) (*Map, error) {
	m := &Map{size: size, first: first, count: count, node: map[Process]string{}}
	for rank := range size {
		m.processes = append(m.processes, Process{Rank: rank})
	}
	for rank := first; rank < first+count; rank++ {
		links, err := readReport(filepath.Join(dir, fmt.Sprintf("rank-%d.json", rank)))
		if errors.Is(err, fs.ErrNotExist) {
			m.mute = append(m.mute, Process{Rank: rank})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("report of rank %d: %w", rank, err)
		}
		m.links = append(m.links, links...)
	}
	local := ""
	for _, l := range m.links {
		local = l.Node
		m.node[l.from()] = l.Node
		if _, known := m.node[l.to()]; !known {
			m.node[l.to()] = l.PeerNode
			if l.PeerNode == "" {
				m.node[l.to()] = l.Node
			}
		}
	}
	if len(m.links) > 0 { // all that ran here ran on one node
		for rank := first; rank < first+count; rank++ {
			m.node[Process{Rank: rank}] = local
		}
	}
	return m, nil
}

// ReportName is the name of the report that ReadHosts looks for.
const ReportName = ".isthmus-report"

// ReadHosts reads the reports of a whole job of so many ranks: node gives the location of each process, and the processes
// of a node share the report dir/SITE/NODE/ReportName, which was their mpilib.EnvReport.
func ReadHosts(dir string, node map[Process]string, size int) (*Map, error) {
	m := &Map{size: size, count: size, node: maps.Clone(node), processes: slices.Collect(maps.Keys(node))}
	for rank := range size {
		if _, known := node[Process{Rank: rank}]; !known {
			m.processes = append(m.processes, Process{Rank: rank})
		}
	}
	slices.SortFunc(m.processes, compare)
	read := map[string]bool{} // nodes, and whether there was a report
	for _, p := range m.processes {
		name, known := node[p]
		there, seen := read[name]
		if !seen && known {
			links, err := readReport(filepath.Join(dir, filepath.FromSlash(name), ReportName))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("report of %s: %w", name, err)
			}
			m.links = append(m.links, links...)
			there = err == nil
			read[name] = there
		}
		if !there {
			m.mute = append(m.mute, p)
		}
	}
	slices.SortStableFunc(m.links, func(a, b report) int {
		return cmp.Or(compare(a.from(), b.from()), compare(a.to(), b.to()))
	})
	return m, nil
}

func readReport(name string) ([]report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var links []report
	for dec := json.NewDecoder(f); ; {
		var l report
		switch err := dec.Decode(&l); {
		case err == io.EOF:
			return links, nil
		case err != nil:
			return nil, err
		}
		links = append(links, l)
	}
}

// rank is the JSON of one process; it is here when it ran under this launcher.
type rank struct {
	Rank     int    `json:"rank"`
	Replica  int    `json:"replica,omitempty"`
	Node     string `json:"node"` // "site/node"; empty: no helper, or not known
	Here     bool   `json:"here"`
	Reported bool   `json:"reported"`
}

// pair is the JSON of one ordered pair of processes that has a link.
type pair struct {
	From        int    `json:"from"`
	FromReplica int    `json:"from_replica,omitempty"`
	To          int    `json:"to"`
	ToReplica   int    `json:"to_replica,omitempty"`
	FromNode    string `json:"from_node"`
	ToNode      string `json:"to_node"`
	Connected   bool   `json:"connected"` // always: others are not listed
	figures
}

// WriteJSON writes one object per line: the processes that are known, and then the ordered
// pairs that have a link, from processes that ran here.
func (m *Map) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	for _, p := range m.processes {
		node, known := m.node[p]
		if !known && !m.isLocal(p) {
			continue
		}
		if err := enc.Encode(rank{p.Rank, p.Replica, node, m.isLocal(p), m.isLocal(p) && !slices.Contains(m.mute, p)}); err != nil {
			return err
		}
	}
	for _, l := range m.links {
		if err := enc.Encode(pair{l.Rank, l.Replica, l.Peer, l.PeerReplica, m.node[l.from()], m.node[l.to()], true, l.figures}); err != nil {
			return err
		}
	}
	return nil
}

func (m *Map) isLocal(p Process) bool { return p.Rank >= m.first && p.Rank < m.first+m.count }
