// Package connect tests how two processes are connected, on every kind of network that the lab can
// build: which technique joins which sites, and that both ends get the same link, once.
package connect
