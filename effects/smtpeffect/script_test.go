package smtpeffect

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// script is a server that answers each command as a function says: "" asks for
// the greeting, "." for the reply to a mail.
func script(t *testing.T, answer func(command string) string) *office {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { converse(c, answer) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return &office{address: l.Addr().String()}
}

func converse(c net.Conn, answer func(string) string) {
	defer c.Close()
	in, body := bufio.NewReader(c), false
	for command := ""; ; {
		said := answer(command)
		if _, err := io.WriteString(c, said+"\r\n"); err != nil {
			return
		}
		body = command == "DATA" && strings.HasPrefix(said, "354")
		for more := true; more; more = body && command != "." {
			text, err := in.ReadString('\n')
			if err != nil {
				return
			}
			command, _, _ = strings.Cut(strings.TrimRight(text, "\r\n"), " ")
		}
	}
}
