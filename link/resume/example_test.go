package resume_test

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/link/resume"
)

// A carrier dies with half of what it carried; a second one, whose handshake says how far the peer
// got, carries the rest.
func Example() {
	s, r := resume.NewSender(1<<20), resume.NewReceiver(1<<20)
	s.Up(1, 1, 0)
	s.Push(1000)
	s.Fin()
	first, _ := s.Next(1, 500)
	s.Next(1, 500) // written, but it will not arrive
	r.Data(first.Off, first.N)
	fmt.Println(s)

	lost := s.Down(1)
	r.Down(1)
	fmt.Println(lost, "bytes to send again, for all that is known")

	s.Up(2, 1, r.Tell(2))
	again, _ := s.Next(2, 4096)
	fmt.Printf("%+v\n", again)
	verdict, _ := r.Data(again.Off, again.N)
	r.Fin(again.Off + uint64(again.N))
	s.Ack(r.Tell(2))
	fmt.Printf("%+v\n", verdict)
	fmt.Println(r.Ended(), s.Finished())
	// Output:
	// acked 0 sent 1001 end 1000 fin window 1048576; [0,1001) on 1; carrier 1 weighs 1
	// 1001 bytes to send again, for all that is known
	// {Off:500 N:500 Fin:true}
	// {Skip:0 Deliver:500 Store:0}
	// true true
}
