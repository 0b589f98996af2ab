// Package rules checks the rules of the repository that no single package can check and that need
// no lab: which package imports which, and the contents of the documentation, the systemd units and
// the Grafana board.
package rules
