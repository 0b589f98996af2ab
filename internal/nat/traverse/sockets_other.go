//go:build !linux

package traverse

type sockets struct{}

func openSockets() (*sockets, error) { return nil, ErrUnsupported }

func (s *sockets) close()                            {}
func (s *sockets) interrupt()                        {}
func (s *sockets) receive([]byte) (int, bool, error) { return 0, false, ErrUnsupported }
func (s *sockets) send(Segment) error                { return ErrUnsupported }
