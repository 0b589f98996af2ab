// Package rules holds the rules of the repository that no single package can check of
// itself and that need no lab: which package imports which, what the pages of the
// documentation, the systemd units and the Grafana board must say.
package rules
