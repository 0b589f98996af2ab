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
	Rank     int    `json:"rank"`
	Node     string `json:"node"` // "site/node"; empty without a helper
	Peer     int    `json:"peer"`
	PeerNode string `json:"peer_node"` // as Node
	figures
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
	size  int
	first int // rank of the first process here
	count int // processes here
	links []report
	mute  []int          // ranks here that left no report
	node  map[int]string // "site/node" of ranks, if known; empty without a helper
}

// Read reads the reports that ranks first to first+count-1 of a job of size processes left in dir,
// which was their mpilib.EnvReport.
func Read(dir string, first, count, size int) (*Map, error) {
	m := &Map{size: size, first: first, count: count, node: map[int]string{}}
	for rank := first; rank < first+count; rank++ {
		links, err := readReport(filepath.Join(dir, fmt.Sprintf("rank-%d.json", rank)))
		if errors.Is(err, fs.ErrNotExist) {
			m.mute = append(m.mute, rank)
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
		m.node[l.Rank] = l.Node
		if _, known := m.node[l.Peer]; !known {
			m.node[l.Peer] = l.PeerNode
			if l.PeerNode == "" {
				m.node[l.Peer] = l.Node
			}
		}
	}
	if len(m.links) > 0 { // all that ran here ran on one node
		for rank := first; rank < first+count; rank++ {
			m.node[rank] = local
		}
	}
	return m, nil
}

// ReportName is the name of the report that ReadHosts looks for.
const ReportName = ".isthmus-report"

// ReadHosts reads the reports of a whole job: node gives the location of each rank, and the ranks
// of a node share the report dir/SITE/NODE/ReportName, which was their mpilib.EnvReport.
func ReadHosts(dir string, node map[int]string, size int) (*Map, error) {
	m := &Map{size: size, count: size, node: maps.Clone(node)}
	read := map[string]bool{} // nodes, and whether there was a report
	for rank := range size {
		name, known := node[rank]
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
			m.mute = append(m.mute, rank)
		}
	}
	slices.SortStableFunc(m.links, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Peer, b.Peer))
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

// rank is the JSON of one rank; it is here when it ran under this launcher.
type rank struct {
	Rank     int    `json:"rank"`
	Node     string `json:"node"` // "site/node"; empty: no helper, or not known
	Here     bool   `json:"here"`
	Reported bool   `json:"reported"`
}

// pair is the JSON of one ordered pair of ranks that has a link.
type pair struct {
	From      int    `json:"from"`
	To        int    `json:"to"`
	FromNode  string `json:"from_node"`
	ToNode    string `json:"to_node"`
	Connected bool   `json:"connected"` // always: others are not listed
	figures
}

// WriteJSON writes one object per line: the ranks that are known, and then the ordered
// pairs that have a link, from ranks that ran here.
func (m *Map) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	for r := range m.size {
		node, known := m.node[r]
		if !known && !m.isLocal(r) {
			continue
		}
		if err := enc.Encode(rank{Rank: r, Node: node, Here: m.isLocal(r), Reported: m.isLocal(r) && !slices.Contains(m.mute, r)}); err != nil {
			return err
		}
	}
	for _, l := range m.links {
		if err := enc.Encode(pair{l.Rank, l.Peer, m.node[l.Rank], m.node[l.Peer], true, l.figures}); err != nil {
			return err
		}
	}
	return nil
}

func (m *Map) isLocal(r int) bool { return r >= m.first && r < m.first+m.count }
