package match_test

import (
	"fmt"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/launch/match"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

func ExampleFind() {
	p, err := profile.Read("job.yaml", []byte(`
groups:
- {name: master, processes: 1}
- {name: workers, processes: 6, cores: 2, inside: {latency: 1ms}}
between:
- {groups: [master, workers], latency: 9ms}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	var hosts []match.Host
	for _, site := range []overlay.SiteID{"orsay", "rennes", "bordeaux"} {
		for _, name := range []string{"n1", "n2"} {
			hosts = append(hosts, match.Host{Node: overlay.NodeID{Site: site, Name: name}, Processes: 4, Cores: 6})
		}
	}
	offer, err := match.NewOffer(hosts)
	if err != nil {
		fmt.Println(err)
		return
	}
	offer.Sites("orsay", "rennes", match.Link{RTT: 10300 * time.Microsecond})
	offer.Sites("orsay", "bordeaux", match.Link{RTT: 7800 * time.Microsecond})
	offer.Sites("bordeaux", "rennes", match.Link{RTT: 8 * time.Millisecond})
	offer.Sites("orsay", "orsay", match.Link{RTT: 2 * time.Millisecond})
	offer.Sites("rennes", "rennes", match.Link{RTT: 100 * time.Microsecond})

	m, err := match.Find(p, offer, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	m.WriteTable(os.Stdout)
	fmt.Println(m.Layout())

	p.Between[0].Latency = 7 * time.Millisecond
	p.Groups[0].Cores = 6
	_, err = match.Find(p, offer, 0)
	fmt.Println(err)
	// Output:
	// GROUP    SITE      HOST  PROCESSES  RANKS
	// master   bordeaux  n1    1          0
	// workers  rennes    n1    3          1-3
	// workers  rennes    n2    3          4-6
	// master:1,workers:6
	// match: no hosts meet the profile; one of these has to give, all else as asked:
	//   "workers": processes: asks for 6 of 2 cores; the best is 3 (workers at orsay)
	//   "master" to "workers": latency: asks for at most 7ms; the best is 8ms (master at bordeaux, workers at rennes)
}
