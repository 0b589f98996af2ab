package connhelper

import (
	"bytes"
	"fmt"
	"os"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/overlay"
)

// lowestUser is the lowest uid that is not a system account's.
const lowestUser = 1000

// noStarter is why a helper that has no account to run jobs in takes none.
const noStarter = "this helper runs as a system account, which launched processes must not have, and has no starter: run isthmus-starter (systemctl enable --now isthmus-starter) and add to the helper's settings: node_service: {starter: " + starter.DefaultSocket + "}"

// setAccounts sets in the node service's options in which accounts jobs run, and whose jobs are
// taken. It returns why no jobs can be taken, or "".
func (c Config) setAccounts(o *nodeservice.Options) (why string) {
	if c.NodeService.Starter != "" {
		o.Starter = byStarter{&starter.Client{Socket: string(c.NodeService.Starter)}}
		return ""
	}
	uidMap, _ := os.ReadFile("/proc/self/uid_map")
	if isSystem(os.Geteuid(), uidMap) {
		return noStarter
	}
	o.Takes = ownJobs(uint32(os.Getuid()), c.NodeService.owners(o.Node))
	return ""
}

// isSystem reports whether an account is root or another system account. Root of a user namespace
// that has only one account is the ordinary user who made it.
func isSystem(uid int, uidMap []byte) bool {
	fields := bytes.Fields(uidMap)
	if uid == 0 && len(fields) == 3 && string(fields[2]) == "1" {
		return false
	}
	return uid < lowestUser
}

// owners returns the patterns of identities whose jobs an ordinary user's helper takes.
func (s NodeServiceSettings) owners(node overlay.NodeID) []string {
	if len(s.Owner) > 0 {
		return s.Owner
	}
	return []string{local.Account(uint32(os.Getuid())) + "@" + string(node.Site) + "/*"}
}

// ownJobs returns a check that refuses jobs not of the user in whose account they would run.
func ownJobs(uid uint32, owners []string) func(nodeservice.Asker) error {
	return func(who nodeservice.Asker) error {
		if who.Here && who.UID == uid || nodeservice.Fits(owners, who.Identity()) {
			return nil
		}
		return fmt.Errorf("this helper is an ordinary user's, and takes that user's jobs only, of %v; not of %s (node_service.owner)", owners, who.Identity())
	}
}

// byStarter starts agents through the starter.
type byStarter struct{ client *starter.Client }

// Start implements nodeservice.Starter.
func (b byStarter) Start(who nodeservice.Asker, folder string, s jobagent.Spec) (nodeservice.Account, error) {
	client := *b.client
	client.Folder = folder
	uid, only, err := client.Start(who.Identity(), s)
	return nodeservice.Account{UID: uid, Only: only}, err
}

// Kill implements nodeservice.Starter.
func (b byStarter) Kill(name string) error { return b.client.Kill(name) }

// Ended implements nodeservice.Starter.
func (b byStarter) Ended(name string) error { return b.client.Ended(name) }
