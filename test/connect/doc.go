// Package connect tests how two processes come to be connected, on every kind of network
// that the lab can build: which technique joins which sites, what daemons measure,
// and how links keep to narrow, slow, silent and odd paths.
package connect
