package collectives

// Pairwise alltoallv: all p-1 receives and p-1 sends are started at once, in
// the order of the pairwise exchange: rank+1, rank+2, ... so that not everyone
// begins with the same target. A slow pair delays nobody else, which steps
// with unequal blocks would. Empty blocks are sent too: ranks that disagree
// about a count get an error and not a wait.
//
// Cost: about α(p-1) + β max(bytes out, bytes in) of the busiest rank, no
// copies. At most 2(p-1) transfers are under way.
func alltoallvPairwise(p *plan) {
	for i := 1; i < p.size; i++ {
		src := (p.rank - i + p.size) % p.size
		p.Receive(src, placed(p.out, p.args.RecvCounts, p.args.RecvDispls, src))
	}
	for i := 1; i < p.size; i++ {
		dst := (p.rank + i) % p.size
		p.Send(dst, placed(p.in, p.args.SendCounts, p.args.SendDispls, dst))
	}
	p.Copy(placed(p.out, p.args.RecvCounts, p.args.RecvDispls, p.rank), placed(p.in, p.args.SendCounts, p.args.SendDispls, p.rank))
}
