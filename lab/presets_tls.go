package lab

// inspecting are kinds that inspect connections on port 443 and let through only those that begin
// with TLS (a handshake record of any version, RFC 8446 section 5.1).
//
// The firewall inspects the first segment with data that a node sends and marks the connection if
// it may continue; segments without data have no bytes to load, so the rules on them do not apply.
// A proxy inspects the first bytes inside its tunnel.
var inspecting = []preset{
	{
		name: "tls-only-443",
		forward: []string{
			`iifname WAN ct state established,related accept`,
			`iifname LAN oifname WAN tcp dport 443 ct mark 1 accept`,
			`iifname LAN oifname WAN tcp dport 443 @ih,0,16 0x1603 ct mark set 1 accept`,
			`iifname LAN oifname WAN tcp dport 443 @ih,0,8 != 0x16 drop`,
			`iifname LAN oifname WAN tcp dport 443 accept`,
		},
	},
	{
		name: "connect-tls-only", proxy: true, onlyTLS: true,
		forward: []string{
			`ct state established,related accept`,
			`iifname LAN oifname WAN ip daddr PROXY tcp dport 3128 accept`,
		},
	},
}
