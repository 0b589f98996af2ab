// Package rules checks the rules of the repository that no single package can check and that need
// no lab: which package imports which, that the commands and settings in the documentation exist, and
// the contents of the documentation, the systemd units and the Grafana board.
package rules
