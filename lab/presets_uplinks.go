package lab

// multihomed are kinds with two uplinks. They share one firewall, like two gateways that
// synchronise their connection tracking.
var multihomed = []preset{
	{name: "two-uplinks", forward: stateful, second: true},
	{name: "asymmetric", forward: stateful, second: true, back: true},
}
