package main

import (
	"path/filepath"
	"testing"
)

// The commands; AT stands for the daemon's address or socket.
var (
	helperCommands = [][]string{
		{"hosts", "--helper", "AT"},
		{"ps", "--helper", "AT"},
		{"top", "--once", "--helper", "AT"},
		{"kill", "--helper", "AT", "nojob"},
		{"run", "--helper", "AT", "-n", "1", "hostname"},
		{"run", "--helper", "AT", "-n", "1", "--dry-run", "hostname"},
	}
	brokerCommands = [][]string{
		{"status", "--broker", "AT", "ADMIN"},
		{"top", "--once", "--helper", "none", "--broker", "AT", "ADMIN"},
		{"plan", "--broker", "AT", "ADMIN", "here", "there"},
		{"policy", "explain", "--broker", "AT", "ADMIN", "--from", "here", "--to", "there", "--user", "alice"},
		{"ca", "enroll", "--broker", "AT", "--token", "TOKEN", "--out", "FOLDER"},
		{"ca", "renew", "--broker", "AT", "OWN"},
		{"ca", "revoke", "--dir", "CA", "--broker", "AT", "ADMIN", "frontal", "nobody"},
		{"doctor", "--broker", "AT", "ADMIN", "here", "there"},
		{"bundle", "--list", "--log", "/dev/null", "--broker", "AT", "ADMIN"},
	}
)

// TestNobodyAnswers runs each command that asks a helper or a broker where there is none, where
// connections are closed, and where the broker denies it: each says so in a few short lines with a
// next step. What it says is in testdata; -update writes that.
func TestNobodyAnswers(t *testing.T) {
	g := newLoopGrid(t)
	none := filepath.Join(g.dir, "none.sock")
	at := map[string]string{"absent": g.nowhere(), "refusing": g.closing(), "denying": g.at}
	cells := append(cellsOf("helper", map[string]string{"absent": none}, helperCommands), cellsOf("broker-admin", at, brokerCommands)...)
	golden := readGolden(t, cells)
	g.runAll(cells)
	golden.conclude(t, cells)
}

// cellsOf returns a cell for each command and each state of the daemon, which is at the address at[state].
func cellsOf(group string, at map[string]string, commands [][]string) (all []*cell) {
	for state, at := range at {
		for _, words := range commands {
			all = append(all, &cell{group: group, state: state, form: words, at: at})
		}
	}
	return all
}
