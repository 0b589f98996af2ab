// Command etcd is one member of an etcd cluster, from etcd's own module, for tests: nothing needs
// to be installed. It is a module of its own, so that the server is not a dependency of the
// daemons.
//
//	etcd NAME DIR NAME=CLIENT-ADDRESS/PEER-ADDRESS...
//
// NAME is one of the following, which are all members. It prints "ready" once the cluster has a
// leader, and ends when its standard input does.
package main

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startTimeout bounds the time until a majority of the members is running.
const startTimeout = 30 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("want NAME DIR NAME=CLIENT/PEER..., have %q", args)
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = args[0], args[1]
	cfg.LogLevel = "error"
	cfg.TickMs, cfg.ElectionMs = 50, 500
	cfg.UnsafeNoFsync = false
	var all []string
	for _, member := range args[2:] {
		name, addresses, ok := strings.Cut(member, "=")
		client, peer, both := strings.Cut(addresses, "/")
		if !ok || !both {
			return fmt.Errorf("%q is no NAME=CLIENT/PEER", member)
		}
		all = append(all, name+"=http://"+peer)
		if name == cfg.Name {
			clients, peers := []url.URL{{Scheme: "http", Host: client}}, []url.URL{{Scheme: "http", Host: peer}}
			cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
			cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
		}
	}
	cfg.InitialCluster = strings.Join(all, ",")
	if _, err := os.Stat(cfg.Dir + "/member"); err == nil {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
		fmt.Println("ready")
	case err := <-e.Err():
		return err
	case <-time.After(startTimeout):
		return fmt.Errorf("no leader after %v", startTimeout)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
