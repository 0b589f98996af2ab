package lab

// multihomed are kinds with two uplinks. The firewall is one for both, as of two
// gateways that tell each other which connections they track.
var multihomed = []preset{
	{name: "two-uplinks", forward: stateful, second: true},
	{name: "asymmetric", forward: stateful, second: true, back: true},
}
