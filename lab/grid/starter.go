package grid

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/lab"
)

// Accounts for the jobs of each host that has a starter: no two hosts share one, because the hosts
// of all labs of this process share one machine's processes.
const (
	firstUID = 1900000000
	hostUIDs = 1000
)

// starters counts the starters of all grids of this process.
var starters atomic.Int64

// canChangeUser reports whether this process may change its user: it can as the machine's root,
// but not as an ordinary user who is root of a namespace.
func canChangeUser() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := bytes.Fields(text)
	return err == nil && os.Geteuid() == 0 && (len(fields) != 3 || string(fields[2]) != "1")
}

// addStarter gives the helper of a host a starter, if it takes jobs, or may after its settings are
// reloaded, and there are accounts for them. The helpers of one host share it. The starter's
// settings are the Config's Settings for "starter", or those for its own name.
func (g *Grid) addStarter(host *lab.Host, settings map[string]any) error {
	offer, _ := settings["offer"].(map[string]any)
	if n, _ := offer["jobs"].(int); n == 0 && !g.cfg.Bare || !canChangeUser() {
		return nil
	}
	socket := filepath.Join(g.dir, safe("starter "+host.Name())+".sock")
	settings["node_service"] = mergeSettings(map[string]any{"starter": socket}, settings["node_service"])
	if g.starters[host.Name()] != nil {
		return nil
	}
	first := firstUID + hostUIDs*(starters.Add(1)-1)
	own := map[string]any{
		"socket": socket, "helper": fmt.Sprint(os.Getuid()), "uids": fmt.Sprintf("%d-%d", first, first+hostUIDs-1),
		"state": filepath.Join(g.dir, safe("starter "+host.Name())+".json"), "log": map[string]any{"format": "json"},
	}
	name := "starter " + host.Name()
	for _, key := range []string{"starter", name} {
		maps.Copy(own, g.cfg.Settings[key])
	}
	text, err := yaml.Marshal(own)
	if err != nil {
		return err
	}
	file := filepath.Join(g.dir, safe("starter "+host.Name())+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	d := &Daemon{
		Name: "starter " + host.Name(), Host: host, settings: file,
		argv: append(g.cfg.Binary("starter"), "--config", file), log: filepath.Join(g.dir, safe("starter "+host.Name())+".log"),
	}
	g.starters[host.Name()] = d
	g.starterOrder = append(g.starterOrder, d)
	return nil
}

// Starter returns the starter of a host; nil: jobs there use the helper's account.
func (g *Grid) Starter(host string) *Daemon { return g.starters[host] }

// startStarters starts all starters concurrently: they do not depend on other daemons.
func (g *Grid) startStarters(ctx context.Context) error {
	errs := make([]error, len(g.starterOrder))
	var all sync.WaitGroup
	for i, d := range g.starterOrder {
		all.Go(func() { errs[i] = d.Start(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
