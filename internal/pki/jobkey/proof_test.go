package jobkey

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

func proven(k Key, rank uint32, life overlay.Generation, node overlay.NodeID) overlay.AccessPoint {
	p := overlay.AccessPoint{Process: overlay.ProcessName{Job: k.ID(), Rank: rank}, Generation: life, Node: node}
	p.Proof = string(k.Auth().Prove(p.Process, life, node))
	return p
}

// A proof is valid for one process, generation and node; any change of the point or the proof
// invalidates it.
func TestProof(t *testing.T) {
	a1 := overlay.NodeID{Site: "sitea", Name: "a1"}
	k, other := mustKey(t, "demo"), mustKey(t, "demo")
	good := proven(k, 3, 7, a1)
	if err := CheckPoint(good); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*overlay.AccessPoint){
		"rank":               func(p *overlay.AccessPoint) { p.Process.Rank++ },
		"generation":         func(p *overlay.AccessPoint) { p.Generation++ },
		"site":               func(p *overlay.AccessPoint) { p.Node.Site = "siteb" },
		"node":               func(p *overlay.AccessPoint) { p.Node.Name = "a2" },
		"site and node":      func(p *overlay.AccessPoint) { p.Node = overlay.NodeID{Site: "sitea" + "a", Name: "1"} },
		"job":                func(p *overlay.AccessPoint) { p.Process.Job = other.ID() },
		"none":               func(p *overlay.AccessPoint) { p.Proof = "" },
		"cut":                func(p *overlay.AccessPoint) { p.Proof = p.Proof[:ProofLen-1] },
		"another job's":      func(p *overlay.AccessPoint) { p.Proof = proven(other, 3, 7, a1).Proof },
		"another key's name": func(p *overlay.AccessPoint) { *p = proven(other, 3, 7, a1); p.Process.Job = k.ID() },
	} {
		bad := good
		change(&bad)
		if err := CheckPoint(bad); !errors.Is(err, overlay.ErrForbidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 200 {
		bad := []byte(good.Proof)
		bad[rand.IntN(len(bad))] ^= 1 << rand.IntN(8)
		changed := good
		if changed.Proof = string(bad); CheckPoint(changed) == nil {
			t.Fatalf("%x is believed", bad)
		}
	}
}

// The key of a node service's job is public: its rank 0 is accepted at its own node only,
// regardless of the proof, and no user's job has such an id.
func TestServiceRank(t *testing.T) {
	a1, b1 := overlay.NodeID{Site: "sitea", Name: "a1"}, overlay.NodeID{Site: "siteb", Name: "b1"}
	k := ServiceKey(a1)
	for _, c := range []struct {
		rank uint32
		node overlay.NodeID
		ok   bool
	}{{0, a1, true}, {0, b1, false}, {0, overlay.NodeID{Site: "sitea", Name: "b1"}, false}, {1, b1, true}, {7, a1, true}} {
		if err := CheckPoint(proven(k, c.rank, 1, c.node)); (err == nil) != c.ok || err != nil && !errors.Is(err, overlay.ErrForbidden) {
			t.Errorf("rank %d at %v: %v", c.rank, c.node, err)
		}
	}
	if _, err := New("node-service"); err == nil {
		t.Error("a user may call a job node-service")
	}
	if err := overlay.CheckJobID("node-service-27ce6cf407a4806050cf7ce0f69f4473"); err == nil {
		t.Error("a user's job may be called node-service")
	}
}

// The bytes of a proof are part of the protocol.
func TestProofVector(t *testing.T) {
	k, err := Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	const want = "bc1cedd0d4c073d949e139354f6e02fd5f1928e9ad1c4b87c65f47f6ca968aba3886ade8db821d326a310930632515f9a12720fce9a9cb3505b01f41ae796ca590f8af874657881a66f4fa127536513afcb4aaf4052ecabcee6c8457a0afa80f"
	if got := hex.EncodeToString([]byte(proven(k, 3, 1_763_000_000_000_000, overlay.NodeID{Site: "sitea", Name: "a1"}).Proof)); got != want {
		t.Errorf("proof %s, want %s", got, want)
	}
}

func FuzzCheckPoint(f *testing.F) {
	k, _ := Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	a1 := overlay.NodeID{Site: "sitea", Name: "a1"}
	good := proven(k, 3, 7, a1)
	f.Add(good.Proof, string(good.Process.Job), uint32(3), uint64(7), "sitea", "a1")
	f.Add("", "node:sitea:a1", uint32(0), uint64(1), "sitea", "a1")
	f.Fuzz(func(t *testing.T, proof, job string, rank uint32, life uint64, site, node string) {
		p := overlay.AccessPoint{
			Process: overlay.ProcessName{Job: overlay.JobID(job), Rank: rank}, Generation: overlay.Generation(life),
			Node: overlay.NodeID{Site: overlay.SiteID(site), Name: node}, Proof: proof,
		}
		if p.Check() != nil || CheckPoint(p) != nil {
			return
		}
		if _, isService := p.Process.Job.ServiceNode(); !isService && p != good {
			t.Errorf("believed: %+v", p)
		}
	})
}

func BenchmarkCheckPoint(b *testing.B) {
	k, _ := New("demo")
	p := proven(k, 3, 7, overlay.NodeID{Site: "sitea", Name: "a1"})
	for b.Loop() {
		if err := CheckPoint(p); err != nil {
			b.Fatal(err)
		}
	}
}
