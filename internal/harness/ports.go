package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// The ports of servers lie outside the ephemeral range, because an outgoing connection could
// take such a port before the server starts, or during a restart.
const (
	firstPort = 20_000
	ports     = 12_000
	portTries = 100
)

// FreePort returns a loopback port on which no TCP server listens, and reserves it for this
// process: no other call returns it, here or in another process.
func FreePort() (string, error) {
	var err error
	for range portTries {
		port := firstPort + rand.IntN(ports)
		if err = reserve(port); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return strconv.Itoa(port), l.Close()
		}
	}
	return "", fmt.Errorf("find a free port from %d to %d: %w", firstPort, firstPort+ports, err)
}

// FreeAddrs returns the loopback addresses of n ports of FreePort.
func FreeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		out = append(out, net.JoinHostPort("127.0.0.1", port))
	}
	return out, nil
}

// reserve takes the UDP port of the same number, so a TCP server can listen on the port at once.
// The socket is a bare descriptor, which stays open until the process ends.
func reserve(port int) error {
	syscall.ForkLock.RLock() // no subprocess inherits it
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return errors.Join(err, syscall.Close(fd))
	}
	return nil
}
