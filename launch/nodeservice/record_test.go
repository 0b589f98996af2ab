package nodeservice

import "testing"

// A record that a disk has damaged is refused before anything is made of it.
func TestDamagedRecord(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"Started": false}`: true,
		`{"Started": true, "Size": 2, "Argv": ["a"], "Processes": [{"Rank": 1}]}`:                                                           true,
		`{"Started": true, "Size": 2, "Replicas": 2, "Spares": 1, "Replaced": [3], "Argv": ["a"], "Processes": [{"Rank": 4}, {"Copy": 1}]}`: true,
		``: false, `[]`: false, `{"Started": tr`: false,
		`{"Started": true}`:                                                                                               false,
		`{"Started": true, "Size": -1, "Argv": ["a"]}`:                                                                    false,
		`{"Started": true, "Size": 4000000000, "Argv": ["a"]}`:                                                            false,
		`{"Started": true, "Size": 100000, "Replicas": 100000, "Argv": ["a"]}`:                                            false,
		`{"Started": true, "Size": 2, "Spares": -5, "Argv": ["a"]}`:                                                       false,
		`{"Started": true, "Size": 2, "Argv": []}`:                                                                        false,
		`{"Started": true, "Size": 2, "Argv": ["a"], "Processes": [{"Rank": 2}]}`:                                         false,
		`{"Started": true, "Size": 2, "Argv": ["a"], "Processes": [{"Rank": -1}]}`:                                        false,
		`{"Started": true, "Size": 2, "Replicas": 2, "Spares": 1, "Replaced": [9], "Argv": ["a"]}`:                        false,
		`{"Started": true, "Size": 2, "Replicas": 2, "Spares": 1, "Argv": ["a"], "Processes": [{"Rank": 4}]}`:             false,
		`{"Started": true, "Size": 2, "Replicas": 2, "Spares": 1, "Replaced": [1, 1, 1], "Argv": ["a"], "Processes": []}`: false,
	} {
		if _, err := readRecord([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"Started": true, "Size": 2, "Replicas": 2, "Spares": 1, "Replaced": [3], "Argv": ["a"], "Processes": [{"Rank": 4}, {"Copy": 1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := readRecord(text)
		if err != nil || !r.Started {
			return
		}
		p := r.program
		if p.numbers() < 1 || p.numbers() < p.first() {
			t.Errorf("%d process numbers, the first %d", p.numbers(), p.first())
		}
		for _, q := range p.Processes {
			if seat := p.seat(q); p.Replicas > 1 && (seat.Rank < 0 || seat.Rank >= p.Size) {
				t.Errorf("%v is in the place of %v", q, seat)
			}
		}
	})
}
