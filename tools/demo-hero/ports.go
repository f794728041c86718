package main

import (
	"fmt"
	"net"
	"strconv"

	"edda/internal/harness"
)

const loopback = "127.0.0.1"

// ports are those that the processes listen on, free a moment ago.
type ports struct {
	redis                     [2]int // of the coordinator's side, and of the supervisor's
	coordinator, rpc, ws      int
	runner                    int
	mycelium, myceliumMetrics int
}

// restAbove is how far above its JSON-RPC the stand-in serves a node's REST.
const restAbove = 100

func freePorts() (p ports, err error) {
	addrs, err := harness.FreeAddrs(7)
	if err != nil {
		return p, err
	}
	for i, port := range []*int{&p.redis[0], &p.redis[1], &p.coordinator, &p.rpc, &p.ws, &p.runner, &p.myceliumMetrics} {
		if _, err := fmt.Sscanf(addrs[i], loopback+":%d", port); err != nil {
			return p, err
		}
	}
	p.mycelium, err = nodePorts()
	return p, err
}

// nodePorts finds the first of the ports that the stand-in's two nodes need: two
// in a row, and two more above.
func nodePorts() (int, error) {
	const tries = 50 // one in a few fails
	var last error
	for range tries {
		first := 0
		for _, above := range []int{0, 1, restAbove, restAbove + 1} {
			at := 0
			if first > 0 {
				at = first + above
			}
			l, err := net.Listen("tcp", address(at))
			if last = err; err != nil {
				break
			}
			first = l.Addr().(*net.TCPAddr).Port - above
			last = l.Close()
		}
		if last == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("find free ports for mycelium: %w", last)
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

func url(port int) string { return "http://" + address(port) }
