package runjob

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/runmap"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// submitWithMap makes the ranks leave reports that are fetched, and shows them at the end.
func submitWithMap(c *cli.Context, con *console, grid *submit.Grid, job *submit.Job) error {
	dir, err := os.MkdirTemp("", "isthmus-map-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	job.Env = append(job.Env, ranks.EnvReport+"="+runmap.ReportName)
	job.Fetch = append(job.Fetch, runmap.ReportName)
	maps := &submit.Folder{Dir: dir}
	job.FetchTo = maps
	r, runErr := submitJob(c, con, grid, job)
	maps.Close() // the map shows a missing report
	if r == nil || len(r.Places) == 0 {
		return runErr
	}
	m, err := runmap.ReadHosts(dir, nodesOf(job, r), job.Place.Ranks)
	if err == nil && c.Bool("json") {
		err = m.WriteJSON(con.stderr)
	} else if err == nil {
		err = m.Write(con.stderr)
	}
	if runErr != nil {
		return runErr
	}
	return err
}

// nodesOf returns where the processes ran. Replicas that are independent of each other report as one would.
func nodesOf(job *submit.Job, r *submit.Result) map[runmap.Process]string {
	nodes := map[runmap.Process]string{}
	if job.Independent {
		for rank, node := range r.Sources {
			nodes[runmap.Process{Rank: rank}] = node.Key()
		}
		return nodes
	}
	for _, p := range r.Places {
		for _, q := range p.Processes {
			nodes[runmap.Process{Rank: q.Rank, Replica: q.Copy}] = p.Node.Key()
		}
	}
	return nodes
}

// reports is a Fetcher that separates the reports from other files.
type reports struct{ to, others submit.Fetcher }

func (r *reports) byName(name string) submit.Fetcher {
	if name == runmap.ReportName {
		return r.to
	}
	return r.others
}

// Piece implements submit.Fetcher.
func (r *reports) Piece(from overlay.NodeID, name string, mode os.FileMode, data []byte, end bool) error {
	return r.byName(name).Piece(from, name, mode, data, end)
}

// Fail implements submit.Fetcher.
func (r *reports) Fail(from overlay.NodeID, name string, why error) {
	r.byName(name).Fail(from, name, why)
}

// Drop implements submit.Fetcher. Reports are wanted of all replicas, other files of one of each rank.
func (r *reports) Drop(from overlay.NodeID) { r.others.Drop(from) }
